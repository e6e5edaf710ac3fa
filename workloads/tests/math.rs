//! The arithmetic of an op: the rate its FLOPs run at, the elements of its product, its way through files.

use std::sync::Arc;

use sim_core::Time;
use sim_core::pages::ByteRange;
use workloads::lower::{GpuShape, PlacedOp, lower};
use workloads::math::{Math, Rates};
use workloads::model::{self, ModelSpec};
use workloads::pattern::KernelPattern;
use workloads::program::{Op, parse, write};

/// An A100 at its peaks.
const GPU: GpuShape = GpuShape {
    sms: 108,
    max_threads_per_sm: 2048,
    max_blocks_per_sm: 32,
    rates: Rates {
        fp32: 19.5e12,
        tf32: 156e12,
        bf16: 312e12,
        fp16: 312e12,
    },
    hbm_bytes_per_s: 1555e9,
    efficiency_flops: 1.0,
    efficiency_bytes: 1.0,
    min_kernel_time: Time(0),
    load_latency: Time(0),
};

const M: u64 = 8192;
const N: u64 = 4096;
const K: u64 = 2048;

/// C = A B with elements of `element` bytes.
fn product(name: &Arc<str>, math: Math, element: u64) -> PlacedOp<'_> {
    let range = |start, elements: u64| ByteRange {
        start,
        bytes: elements * element,
    };
    PlacedOp {
        name,
        reads: vec![range(0, M * K), range(1 << 40, K * N)],
        writes: vec![range(2 << 40, M * N)],
        flops: 2 * M * N * K,
        math,
        read_bytes: (M * K + K * N) * element,
        write_bytes: M * N * element,
        launches: 1,
        sparse: false,
        duration: None,
    }
}

#[test]
fn a_product_runs_at_the_rate_of_its_arithmetic() {
    let name = Arc::from("mm");
    let flops = (2 * M * N * K) as f64;
    for (math, rate) in [
        (Math::Fp32, 19.5e12),
        (Math::Tf32, 156e12),
        (Math::Bf16, 312e12),
        (Math::Fp16, 312e12),
    ] {
        let kernel = lower(&product(&name, math, math.element_bytes()), &GPU);
        assert_eq!(kernel.duration, Time::from_secs_f64(flops / rate), "{math:?}");
        let KernelPattern::Gemm(gemm) = kernel.pattern else {
            panic!("{math:?}: not a product");
        };
        assert_eq!((gemm.m, gemm.n, gemm.k), (M, N, K), "{math:?}");
    }
}

/// What share of the FLOPs of one iteration has which arithmetic.
fn flops_by(precision: &str, math: Math) -> (u64, u64) {
    let spec = ModelSpec {
        precision: precision.parse().unwrap(),
        batch: 1,
        ..ModelSpec::new("gpt2")
    };
    let program = model::generate(&spec).unwrap();
    let mut bytes = Vec::new();
    write(&program, &mut bytes).unwrap();
    // Through the file and back.
    let program = parse(bytes.as_slice(), "gpt2").unwrap();
    let mut of = (0, 0);
    for op in program.iterations.iter().flatten() {
        if let Op::Kernel { flops, math: m, .. } = op {
            of.1 += flops;
            of.0 += if *m == math { *flops } else { 0 };
        }
    }
    of
}

#[test]
fn models_say_the_arithmetic_of_their_products() {
    let (fp32, all) = flops_by("fp32", Math::Fp32);
    assert_eq!(fp32, all);
    for (precision, math) in [("tf32", Math::Tf32), ("bf16", Math::Bf16), ("fp16", Math::Fp16)] {
        let (there, all) = flops_by(precision, math);
        assert!(there as f64 > 0.99 * all as f64, "{precision}: {there} of {all}");
    }
}

#[test]
fn autocast_of_a_recording_reaches_its_products() {
    let line = |amp: &str| {
        format!(
            concat!(
                r#"{{"format":"uvm-train-trace/1","name":"t"{}}}"#,
                "\n{{\"k\":\"alloc\",\"a\":4096,\"n\":4096}}\n{{\"k\":\"iter\",\"i\":0}}\n",
                r#"{{"k":"op","name":"mm","r":[[4096,512]],"w":[[4096,512]],"flops":8}}"#,
                "\n",
                r#"{{"k":"op","name":"mul","r":[[4096,512]],"w":[[4096,512]],"flops":8}}"#,
                "\n"
            ),
            amp
        )
    };
    let maths = |text: String| {
        let (program, _) = workloads::import::train_trace::convert(text.as_bytes(), "t").unwrap();
        let of = |op: &Op| match op {
            Op::Kernel { math, .. } => Some(*math),
            _ => None,
        };
        program.iterations[0].iter().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(maths(line("")), [Math::Fp32, Math::Fp32]);
    assert_eq!(
        maths(line(r#","amp":"torch.bfloat16""#)),
        [Math::Bf16, Math::Fp32]
    );
    for none in [r#","amp":null"#, r#","amp":"fp32""#] {
        assert_eq!(maths(line(none)), [Math::Fp32, Math::Fp32]);
    }
    let wrong = workloads::import::train_trace::convert(line(r#","amp":"int4""#).as_bytes(), "t");
    assert!(wrong.unwrap_err().to_string().contains("torch.float16"));
}
