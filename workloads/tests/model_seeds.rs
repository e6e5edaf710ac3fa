//! The starting paper's four training jobs, generated from their models, against their recordings.

use std::io::BufRead as _;
use std::path::Path;

use workloads::model::{
    Attention, Convolution, ModelSpec, Optimizer, Style, Targets, ZeroGrad, forward, generate,
};

mod peaks;
use peaks::peaks;

/// As the authors' scripts run it: forward, no gradients, backward, step, without `cuDNN`.
fn job(name: &str, batch: u64, optimizer: Optimizer, style: Style) -> ModelSpec {
    ModelSpec {
        batch,
        optimizer: Some(optimizer),
        zero_grad: ZeroGrad::BeforeBackward,
        style,
        ..ModelSpec::new(name)
    }
}

fn alexnet() -> ModelSpec {
    let style = Style {
        convolution: Convolution::Native,
        targets: Targets::Probabilities,
        classes: Some(10),
        ..Style::default()
    };
    ModelSpec {
        image: Some(512),
        ..job("alexnet", 128, Optimizer::Sgd, style)
    }
}

fn resnet50() -> ModelSpec {
    let style = Style {
        convolution: Convolution::Native,
        targets: Targets::Probabilities,
        classes: Some(10),
        relu_inplace: false,
        conv_bias: true,
        shortcut_clone: true,
        ..Style::default()
    };
    ModelSpec {
        image: Some(512),
        ..job("resnet50", 32, Optimizer::Sgd, style)
    }
}

fn gpt2() -> ModelSpec {
    let style = Style {
        attention: Attention::Eager,
        composed: true,
        dropout: false,
        ..Style::default()
    };
    ModelSpec {
        sequences: vec![470, 509, 506, 501, 507, 495],
        ..job("gpt2", 8, Optimizer::AdamW, style)
    }
}

fn bert() -> ModelSpec {
    let style = Style {
        attention: Attention::Eager,
        composed: true,
        targets: Targets::Probabilities,
        ..Style::default()
    };
    ModelSpec {
        sequence: Some(378),
        ..job("bert-encoder", 16, Optimizer::AdamW, style)
    }
}

#[test]
fn the_papers_jobs_are_their_recordings() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/models/train");
    if !folder.is_dir() {
        println!("skipped: {} is not here", folder.display());
        return;
    }
    let mut misses = Vec::new();
    for (name, spec) in [
        ("seed_alexnet_b128", alexnet()),
        ("seed_resnet50_b32", resnet50()),
        ("seed_gpt2_b8", gpt2()),
        ("seed_bert_b16", bert()),
    ] {
        let file = std::fs::File::open(folder.join(format!("{name}.train.jsonl.gz"))).unwrap();
        let mut header = String::new();
        let mut lines = std::io::BufReader::new(flate2::read::GzDecoder::new(file));
        lines.read_line(&mut header).unwrap();
        let header: serde_json::Value = serde_json::from_str(&header).unwrap();
        let last = header["iters"].as_array().unwrap().last().unwrap();
        let recorded = |key: &str| last[key].as_u64().unwrap();
        assert_eq!(
            forward(&spec).unwrap().parameters(),
            header["params"].as_u64().unwrap(),
            "{name}"
        );
        let (peak, reserved, kernels, flops) = peaks(&generate(&spec).unwrap());
        println!("{name}");
        for (what, ours, theirs, bound) in [
            ("peak allocated", peak, recorded("peak_allocated"), 0.01),
            // Workspaces of products and sums, and when Python drops a name, decide which free segment is
            // split.
            ("peak reserved", reserved, recorded("peak_reserved"), 0.05),
            // The gradients of embedding tables sort the indices in 20 kernels and more; ours are one kernel.
            ("kernels", kernels, recorded("kernels"), 0.03),
            ("FLOPs", flops, recorded("flops"), 0.0),
        ] {
            let off = ours as f64 / theirs as f64 - 1.0;
            println!("  {what}: {ours}, recorded {theirs} ({:+.3} %)", 100.0 * off);
            if off.abs() > bound {
                misses.push(format!("{name} {what} {off:+.4}"));
            }
        }
    }
    assert!(misses.is_empty(), "{misses:?}");
}
