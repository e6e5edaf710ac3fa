//! What is known of ops by their names: element sizes, views, in-place ops, floating point operations.

/// Bytes of an element by the name of its type in profiles and execution traces.
pub(super) fn element_bytes(name: &str) -> u64 {
    match name.trim_start_matches("c10::") {
        "double" | "long" | "long int" | "Long" | "Double" | "complex<float>" | "ComplexFloat" | "int64" => 8,
        "Half" | "BFloat16" | "short" | "short int" | "Short" | "half" | "bfloat16" => 2,
        "bool" | "Bool" | "signed char" | "unsigned char" | "Char" | "Byte" | "Float8_e4m3fn"
        | "Float8_e5m2" => 1,
        "complex<double>" | "ComplexDouble" => 16,
        _ => 4,
    }
}

/// Ops that only make another view of a tensor: they launch nothing.
pub(super) fn is_view(name: &str) -> bool {
    matches!(
        name.strip_prefix("aten::").unwrap_or(name),
        "view"
            | "t"
            | "transpose"
            | "permute"
            | "expand"
            | "as_strided"
            | "slice"
            | "select"
            | "detach"
            | "detach_"
            | "alias"
            | "unsqueeze"
            | "squeeze"
            | "_unsafe_view"
            | "_reshape_alias"
            | "split"
            | "chunk"
            | "unbind"
            | "narrow"
            | "reshape"
            | "flatten"
            | "set_"
            | "is_pinned"
            | "resize_"
            | "lift_fresh"
            | "result_type"
    )
}

/// Does the op write its first input (or, for lists, all of them)?
pub(super) fn is_in_place(name: &str) -> bool {
    let plain = name.strip_prefix("aten::").unwrap_or(name);
    (plain.ends_with('_') && !plain.ends_with("__")) || plain.starts_with("_fused_")
}

/// Floating point operations of a matrix product by the dimensions of its inputs; 0 for other ops.
pub(super) fn flops(name: &str, dims: &[Vec<u64>]) -> u64 {
    let product = |list: &[u64]| list.iter().fold(1_u64, |all, n| all.saturating_mul(*n));
    let of = |a: &[u64], b: &[u64]| -> u64 {
        // [.., m, k] times [.., k, n].
        match (a, b) {
            ([.., k], [.., k2, n]) if k == k2 => product(a).saturating_mul(*n).saturating_mul(2),
            _ => 0,
        }
    };
    let plain = name.strip_prefix("aten::").unwrap_or(name);
    match (plain, dims) {
        ("mm" | "bmm" | "matmul", [a, b, ..]) | ("addmm" | "baddbmm", [_, a, b, ..]) => of(a, b),
        ("linear", [a, b, ..]) => match (a.as_slice(), b.as_slice()) {
            ([.., k], [n, k2]) if k == k2 => product(a).saturating_mul(*n).saturating_mul(2),
            _ => 0,
        },
        _ => 0,
    }
}

/// Bytes of a tensor of these dimensions; none if it is no tensor or absurd.
pub(super) fn bytes(dims: &[u64], element: u64) -> Option<u64> {
    if dims.is_empty() {
        return None;
    }
    let mut bytes = element;
    for n in dims {
        bytes = bytes.checked_mul(*n)?;
    }
    (bytes > 0 && bytes < 1 << 50).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products() {
        let dims = |list: &[&[u64]]| list.iter().map(|d| d.to_vec()).collect::<Vec<_>>();
        assert_eq!(flops("aten::mm", &dims(&[&[2, 3], &[3, 5]])), 60);
        assert_eq!(flops("aten::addmm", &dims(&[&[5], &[2, 3], &[3, 5]])), 60);
        assert_eq!(flops("aten::bmm", &dims(&[&[4, 2, 3], &[4, 3, 5]])), 240);
        assert_eq!(flops("aten::linear", &dims(&[&[4, 2, 3], &[5, 3]])), 240);
        assert_eq!(flops("aten::mm", &dims(&[&[2, 3], &[4, 5]])), 0);
        assert!(is_in_place("aten::add_") && !is_in_place("aten::add") && !is_in_place("aten::__and__"));
        assert_eq!(bytes(&[2, 3], 4), Some(24));
        assert_eq!(bytes(&[u64::MAX, 3], 4), None);
    }
}
