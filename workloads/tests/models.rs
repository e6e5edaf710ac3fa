//! Generated models against published parameter counts and, where they are, the tables and recorded runs
//! of this project.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use workloads::model::tape::{Param, Ref, Tape};
use workloads::model::{
    Attention, CATALOG, Convolution, ModelSpec, Optimizer, Precision, Style, Targets, Task, forward, generate,
};
use workloads::program::{Op, Program};

mod peaks;
use peaks::peaks;

fn recorded() -> Style {
    Style {
        adds_in_place: false,
        ..Style::default()
    }
}

/// One sample, as the recorder of the runs saw it: it held gradients, so none was added to in place.
fn spec(name: &str) -> ModelSpec {
    ModelSpec {
        batch: 1,
        style: recorded(),
        ..ModelSpec::new(name)
    }
}

#[test]
fn parameter_counts_are_the_published_ones() {
    // torchvision and transformers model cards; dl-models 1.
    for (name, count) in [
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
        ("resnet101", 44_549_160),
        ("resnet152", 60_192_808),
        ("vgg16", 138_357_544),
        ("alexnet", 61_100_840),
        ("densenet121", 7_978_856),
        ("inception-v3", 27_161_264),
        ("vit-b-16", 86_567_656),
        ("bert-base", 110_106_428),
        ("bert-large", 336_226_108),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("llama2-7b", 6_738_415_616),
        ("whisper-small", 241_734_912),
        ("dlrm", 540_677_217),
    ] {
        assert_eq!(forward(&spec(name)).unwrap().parameters(), count, "{name}");
    }
}

fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/models");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: {} is not here", folder.display());
    None
}

/// Rows of a forward pass: op, new parameters, bytes of the outputs, FLOPs.
fn rows(tape: &Tape) -> Vec<(String, u64, u64, u64)> {
    let mut seen: HashSet<Param> = HashSet::new();
    tape.nodes
        .iter()
        .filter_map(|node| {
            let params = node.params.iter().filter(|p| seen.insert(**p));
            let params = params.map(|p| tape.params[p.0 as usize].numel()).sum();
            let bytes = node.outputs.iter().map(|y| tape.value(*y).bytes()).sum();
            Some((node.op?.to_owned(), params, bytes, node.flops))
        })
        .collect()
}

/// Models and their tables.
const TABLES: [(&str, &str); 13] = [
    ("resnet50", "resnet50"),
    ("resnet152", "resnet152"),
    ("vgg16", "vgg16"),
    ("densenet121", "densenet121"),
    ("inception-v3", "inception_v3"),
    ("vit-b-16", "vit_b_16"),
    ("bert-base", "bert-base"),
    ("bert-large", "bert-large"),
    ("gpt2", "gpt2"),
    ("gpt2-medium", "gpt2-medium"),
    ("gpt2-large", "gpt2-large"),
    ("gpt2-xl", "gpt2-xl"),
    ("llama2-7b", "llama2-7b"),
];

/// Bytes that autograd keeps of each op for the backward pass, by the order of their making: storages that
/// are no parameters, each counted once.
fn saved_bytes(tape: &Tape) -> u64 {
    let mut kept = HashSet::new();
    for node in &tape.nodes {
        if !node.outputs.iter().any(|y| tape.value(*y).requires_grad) {
            continue;
        }
        for read in node.backward.iter().flat_map(|kernel| &kernel.reads) {
            let var = match read {
                Ref::In(i) => node.inputs[*i],
                Ref::Out(k) => node.outputs[*k],
                _ => continue,
            };
            kept.insert(tape.value(var).storage);
        }
    }
    kept.iter().map(|storage| tape.storages[*storage as usize]).sum()
}

/// In sum: the tables' rows are exact in total only.
#[test]
fn saved_bytes_are_those_of_the_tables() {
    let Some(folder) = data() else { return };
    for (name, table) in TABLES {
        let tape = forward(&spec(name)).unwrap();
        let attention = tape
            .nodes
            .iter()
            .filter(|node| node.op.is_some_and(|op| op.contains("attention")));
        // The two seeds of each attention are on the device here, and the labels of BERT's recording are its
        // very token numbers.
        let seeds = 2 * 8 * attention.count() as u64;
        let labels = if name.starts_with("bert") { 512 * 8 } else { 0 };
        let mut reader = csv::Reader::from_path(folder.join(format!("{table}.csv"))).unwrap();
        let theirs: u64 = reader
            .records()
            .map(|row| row.unwrap()[10].parse::<u64>().unwrap())
            .sum();
        assert_eq!(saved_bytes(&tape), theirs + seeds + labels, "{name}");
    }
}

#[test]
fn forward_ops_equal_the_tables_row_by_row() {
    let Some(folder) = data() else { return };
    for (name, table) in TABLES {
        let ours = rows(&forward(&spec(name)).unwrap());
        let mut reader = csv::Reader::from_path(folder.join(format!("{table}.csv"))).unwrap();
        let mut count = 0;
        for (at, row) in reader.records().enumerate() {
            let row = row.unwrap();
            let number = |column: usize| row[column].parse::<u64>().unwrap();
            let theirs = (row[3].to_owned(), number(6), number(9), number(11));
            assert_eq!(ours.get(at), Some(&theirs), "{name}, row {at}: {row:?}");
            count += 1;
        }
        assert_eq!(ours.len(), count, "{name}");
    }
}

#[test]
fn training_memory_is_that_of_the_recorded_runs() {
    use std::io::BufRead as _;
    let Some(folder) = data() else { return };
    let model = |name: &str, batch: u64, optimizer: Optimizer| ModelSpec {
        batch,
        optimizer: Some(optimizer),
        style: recorded(),
        ..ModelSpec::new(name)
    };
    let cases = [
        ("resnet50_b64_sgd", model("resnet50", 64, Optimizer::Momentum)),
        ("vgg16_b64_sgd", model("vgg16", 64, Optimizer::Momentum)),
        (
            "densenet121_b32_sgd",
            model("densenet121", 32, Optimizer::Momentum),
        ),
        ("gpt2_b4_s1024_adamw", model("gpt2", 4, Optimizer::AdamW)),
        (
            "bert-base_b32_s128_adam",
            ModelSpec {
                sequence: Some(128),
                ..model("bert-base", 32, Optimizer::Adam)
            },
        ),
        (
            "gpt2_b8_s1024_bf16_adamw",
            ModelSpec {
                precision: Precision::Bf16,
                ..model("gpt2", 8, Optimizer::AdamW)
            },
        ),
    ];
    let mut worst: f64 = 0.0;
    for (name, spec) in cases {
        let file = std::fs::File::open(folder.join(format!("train/{name}.train.jsonl.gz"))).unwrap();
        let mut header = String::new();
        let mut lines = std::io::BufReader::new(flate2::read::GzDecoder::new(file));
        lines.read_line(&mut header).unwrap();
        let header: serde_json::Value = serde_json::from_str(&header).unwrap();
        let recorded = |key: &str| header["iters"][2][key].as_u64().unwrap();
        let (peak, reserved, kernels, flops) = peaks(&generate(&spec).unwrap());
        let off = |ours: u64, theirs: u64| ours as f64 / theirs as f64 - 1.0;
        let (a, r) = (
            off(peak, recorded("peak_allocated")),
            off(reserved, recorded("peak_reserved")),
        );
        let total = header["flops"]["fwd"].as_u64().unwrap() + header["flops"]["bwd"].as_u64().unwrap();
        println!(
            "{name}: allocated {peak} ({:+.2} %), reserved {reserved} ({:+.2} %), {kernels} kernels, FLOPs {:+.3} %",
            100.0 * a,
            100.0 * r,
            100.0 * off(flops, total)
        );
        worst = worst.max(a.abs()).max(r.abs());
    }
    assert!(worst < 0.05, "{worst}");
}

#[test]
fn variants_are_whole_programs() {
    let small = |change: &dyn Fn(&mut ModelSpec)| {
        let mut spec = ModelSpec {
            batch: 8,
            sequence: Some(256),
            ..spec("gpt2")
        };
        change(&mut spec);
        generate(&spec).unwrap()
    };
    let check = |program: &Program| {
        let mut text = Vec::new();
        workloads::program::write(program, &mut text).unwrap();
        // The reader checks that every access lies in a live tensor and that nothing is freed twice.
        assert_eq!(
            &workloads::program::parse(text.as_slice(), "model").unwrap(),
            program
        );
    };
    let plain = small(&|_| ());
    check(&plain);
    let checkpointed = small(&|spec| spec.checkpointing = true);
    check(&checkpointed);
    // Recomputation costs kernels and saves memory.
    let (more, less) = (peaks(&checkpointed), peaks(&plain));
    assert!(more.2 > less.2 && more.3 > less.3, "{more:?} {less:?}");
    assert!(more.0 < less.0, "{more:?} {less:?}");
    let accumulated = small(&|spec| spec.accumulation = 3);
    check(&accumulated);
    assert_eq!(peaks(&accumulated).3, 3 * less.3);
    let fused = small(&|spec| spec.implementation = workloads::model::Implementation::Fused);
    check(&fused);
    assert!(peaks(&fused).2 < less.2);
    let late = small(&|spec| spec.zero_grad = workloads::model::ZeroGrad::BeforeBackward);
    check(&late);
    check(&small(&|spec| spec.precision = Precision::Bf16));
    let inference = small(&|spec| spec.task = Task::Inference);
    check(&inference);
    // The cache holds prompt and generated tokens, twice per layer, and nothing grows from step to step.
    let caches: u64 = 8 * 2 * 12 * (256 + 8) * 768 * 4;
    let setup: u64 = inference
        .setup
        .iter()
        .map(|op| if let Op::Alloc { n, .. } = op { *n } else { 0 })
        .sum();
    assert!(setup > 4 * 124_439_808 + caches && setup < 4 * 124_439_808 + caches + (64 << 20));
    for entry in CATALOG {
        check(
            &generate(&ModelSpec {
                iterations: 2,
                ..spec(entry.name)
            })
            .unwrap(),
        );
    }
}

#[test]
fn impossible_models_are_refused() {
    let says = |spec: ModelSpec| generate(&spec).unwrap_err().to_string();
    assert!(says(spec("gpt5")).contains("accepted: resnet18"));
    for (change, key) in [
        (
            ModelSpec {
                batch: 0,
                ..spec("gpt2")
            },
            "batch_size = 0",
        ),
        (
            ModelSpec {
                sequence: Some(2000),
                ..spec("gpt2")
            },
            "1 to 1024 tokens",
        ),
        (
            ModelSpec {
                sequence: Some(8),
                ..spec("resnet50")
            },
            "no sequence",
        ),
        (
            ModelSpec {
                image: Some(100),
                ..spec("vit-b-16")
            },
            "multiple of 16",
        ),
        (
            ModelSpec {
                image: Some(32),
                ..spec("alexnet")
            },
            "63 to 4096",
        ),
        (
            ModelSpec {
                checkpointing: true,
                ..spec("vgg16")
            },
            "checkpointing",
        ),
        (
            ModelSpec {
                task: Task::Inference,
                ..spec("bert-base")
            },
            "task = inference",
        ),
        (
            ModelSpec {
                task: Task::Inference,
                sequence: Some(1024),
                ..spec("gpt2")
            },
            "together 1024",
        ),
    ] {
        let said = says(change);
        assert!(said.contains(key), "{said}");
    }
}

#[test]
fn styles_that_a_model_has_no_use_for_are_refused() {
    let styled = |name: &str, change: &dyn Fn(&mut Style)| {
        let mut spec = spec(name);
        change(&mut spec.style);
        generate(&spec).map_err(|error| error.to_string())
    };
    for (name, change, said) in [
        (
            "gpt2",
            (&|style: &mut Style| style.convolution = Convolution::Native) as &dyn Fn(&mut Style),
            "convolution = native: gpt2 accepts implicit",
        ),
        (
            "resnet18",
            &|style| style.attention = Attention::Eager,
            "attention = eager: resnet18 accepts fused",
        ),
        ("vgg16", &|style| style.composed = true, "composed = true"),
        ("resnet50", &|style| style.dropout = false, "dropout = false"),
        ("dlrm", &|style| style.targets = Targets::Probabilities, "targets"),
        ("gpt2", &|style| style.classes = Some(10), "classes = 10"),
        ("alexnet", &|style| style.classes = Some(1), "2 to 16777216"),
        ("bert-base", &|style| style.relu_inplace = false, "relu_inplace"),
        ("alexnet", &|style| style.conv_bias = true, "conv_bias"),
        ("vgg16", &|style| style.shortcut_clone = true, "shortcut_clone"),
    ] {
        let refusal = styled(name, change).unwrap_err();
        assert!(refusal.contains(said), "{refusal}");
    }
    // A million samples, each with kernels of its own.
    let many = ModelSpec {
        batch: 1 << 20,
        style: Style {
            convolution: Convolution::Native,
            ..Style::default()
        },
        ..spec("resnet50")
    };
    assert!(generate(&many).unwrap_err().to_string().contains("fewer samples"));
}

#[test]
fn lengths_of_iterations_are_read_and_checked() {
    let mut spec = ModelSpec::new("gpt2");
    spec.read_sequences(" 12, 34,56").unwrap();
    assert_eq!(spec.sequences, [12, 34, 56]);
    assert_eq!(generate(&spec).unwrap().iterations.len(), 3);
    for text in ["12,", "a", "1;2", "-3"] {
        let refusal = spec.read_sequences(text).unwrap_err().to_string();
        assert!(refusal.contains("lengths as"), "{refusal}");
    }
    spec.read_sequences("12, 2000").unwrap();
    assert!(generate(&spec).unwrap_err().to_string().contains("1 to 1024"));
    spec.read_sequences("12").unwrap();
    spec.sequence = Some(5);
    assert!(generate(&spec).unwrap_err().to_string().contains("beside"));
}
