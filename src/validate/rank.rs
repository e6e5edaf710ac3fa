//! Spearman's rank correlation.

/// Ranks from 1; equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    while first < order.len() {
        let mut end = first + 1;
        while end < order.len() && values[order[end]].total_cmp(&values[order[first]]).is_eq() {
            end += 1;
        }
        // Ranks first+1 ..= end, their mean.
        let mean = (first + 1 + end) as f64 / 2.0;
        for place in &order[first..end] {
            ranks[*place] = mean;
        }
        first = end;
    }
    ranks
}

/// Pearson's correlation of the ranks; `None` below three pairs or where one side has no spread.
pub fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (a, b) = (ranks(&a), ranks(&b));
    let mean = (pairs.len() + 1) as f64 / 2.0;
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(&b) {
        ab += (x - mean) * (y - mean);
        aa += (x - mean) * (x - mean);
        bb += (y - mean) * (y - mean);
    }
    (aa > 0.0 && bb > 0.0).then(|| ab / (aa * bb).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let of =
            |a: &[f64], b: &[f64]| spearman(&a.iter().copied().zip(b.iter().copied()).collect::<Vec<_>>());
        assert_eq!(of(&[1.0, 2.0, 3.0], &[10.0, 20.0, 25.0]), Some(1.0));
        assert_eq!(of(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), Some(-1.0));
        assert_eq!(of(&[1.0, 2.0], &[1.0, 2.0]), None);
        assert_eq!(of(&[1.0, 1.0, 1.0], &[1.0, 2.0, 3.0]), None);
        // 1 - 6 sum(d^2) / (n (n^2 - 1)) with d = 1, -1, 1, -1, 0: 1 - 24/120.
        let rho = of(&[1.0, 2.0, 3.0, 4.0, 5.0], &[2.0, 1.0, 4.0, 3.0, 5.0]).unwrap();
        assert!((rho - 0.8).abs() < 1e-12);
        // Ties: ranks 1.5 1.5 3 against 1 2 3.
        let rho = of(&[1.0, 1.0, 2.0], &[1.0, 2.0, 3.0]).unwrap();
        assert!((rho - 0.75f64.sqrt()).abs() < 1e-12);
    }
}
