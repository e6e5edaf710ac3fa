//! The arithmetic of a kernel: which of a GPU's rates its floating point operations run at.

use serde::{Deserialize, Serialize};

/// Number format of the multiplications; sums are kept in single precision, as libraries do by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Math {
    /// Single precision on the ordinary cores.
    #[default]
    Fp32,
    /// Operands of 4 bytes, rounded to TF32 for the matrix units.
    Tf32,
    /// bfloat16 operands on the matrix units.
    Bf16,
    /// Half-precision operands on the matrix units.
    Fp16,
}

impl Math {
    /// Bytes of an operand's element in memory.
    pub const fn element_bytes(self) -> u64 {
        match self {
            Math::Fp32 | Math::Tf32 => 4,
            Math::Bf16 | Math::Fp16 => 2,
        }
    }

    /// Is it the default, which files leave out?
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde hands over a reference
    pub fn is_fp32(&self) -> bool {
        *self == Math::Fp32
    }
}

/// Peak rates of a GPU by arithmetic, FLOP/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Single precision.
    pub fp32: f64,
    /// TF32, without sparsity; on a GPU without it, the single-precision rate.
    pub tf32: f64,
    /// bfloat16 with single-precision sums, without sparsity.
    pub bf16: f64,
    /// Half precision with single-precision sums, without sparsity.
    pub fp16: f64,
}

impl Rates {
    /// The same rate for all.
    pub const fn uniform(flops_per_s: f64) -> Rates {
        Rates {
            fp32: flops_per_s,
            tf32: flops_per_s,
            bf16: flops_per_s,
            fp16: flops_per_s,
        }
    }

    /// Rate of one arithmetic, FLOP/s.
    pub const fn of(&self, math: Math) -> f64 {
        match math {
            Math::Fp32 => self.fp32,
            Math::Tf32 => self.tf32,
            Math::Bf16 => self.bf16,
            Math::Fp16 => self.fp16,
        }
    }
}
