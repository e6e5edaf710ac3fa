//! Built-in kernels through the whole simulator: skipping ahead and a detour over a file change nothing.

use std::sync::Arc;

use uvmsim::config::Config;
use uvmsim::config::diagnostic::Source;
use uvmsim::config::document::Extra;
use uvmsim::simulate::{Simulator, guarded};
use workloads::builtin::Builtin;
use workloads::classic::Options;

/// Sizes that take little time and do not fit: a few MiB.
fn small(kernel: &str) -> Vec<(&'static str, u64)> {
    match kernel {
        "add-vectors" | "triad-f32" | "random-access" => vec![("n", 600_000)],
        "random-warp" => vec![("blocks", 64)],
        "gups" => vec![("lookups", 1 << 14), ("blocks", 16)],
        "xsbench" => vec![("lookups", 1000), ("n", 2000), ("m", 12)],
        "gemv" => vec![("n", 1200), ("m", 1200)],
        "atax" | "mvt" | "bicg" => vec![("n", 700)],
        "gram-schmidt" => vec![("n", 24)],
        "fft" => vec![("scale", 19)],
        "2dconv" => vec![("n", 1024)],
        "stencil-2d" | "gauss-seidel" => vec![("n", 1024), ("steps", 2)],
        "stencil-3d" => vec![("n", 128), ("m", 40), ("steps", 2)],
        "multigrid" => vec![("n", 512), ("steps", 1)],
        "fdtd-2d" => vec![("n", 700), ("steps", 2)],
        "hotspot" => vec![("n", 800)],
        "pathfinder" => vec![("n", 60), ("m", 20_000)],
        "srad" => vec![("n", 512), ("steps", 2)],
        "backprop" => vec![("n", 32_000)],
        "nw" => vec![("n", 512)],
        "bfs" | "sssp" => vec![("n", 100_000)],
        "pagerank" => vec![("scale", 14), ("steps", 2)],
        "embedding" | "embedding-backward" => vec![("n", 8000), ("lookups", 2000)],
        "adam" => vec![("n", 2)],
        "softmax" | "layer-norm" => vec![("n", 600), ("m", 1500)],
        "batch-norm" => vec![("batch", 4), ("m", 32), ("n", 3000)],
        "attention" | "flash-attention" => vec![("batch", 1), ("heads", 4), ("n", 700)],
        "conv-implicit" | "conv-im2col" => vec![("batch", 4), ("m", 32), ("k", 40)],
        _ => vec![],
    }
}

#[test]
fn fast_stepped_and_from_a_file_are_equal() {
    let folder = tempfile::tempdir().unwrap();
    let simulator = Simulator::default();
    for builtin in Builtin::all() {
        let name = builtin.name();
        let mut text = format!(
            "[workload]\nkernel = \"{name}\"\niterations = 2\n[memory]\noversubscription = 1.4\n[study]\nname = \"k\"\n[gpu]\nsms = 20\n"
        );
        let mut sets: Vec<String> = small(name)
            .iter()
            .map(|(param, value)| format!("workload.param.{param}={value}"))
            .collect();
        if builtin.is_sized() {
            sets.push("workload.array_size=3MiB".to_owned());
        }
        let run = |text: &str, sets: &[String]| {
            let source = Arc::new(Source {
                name: "kernels.toml".into(),
                text: text.to_owned(),
            });
            let config = Config::from_source(&source, None, sets, Extra::Config)
                .and_then(|config| config.resolve())
                .unwrap_or_else(|errors| panic!("{}", errors.render(false)));
            let summary = guarded(&simulator, &config, false).unwrap().summary;
            (config, summary)
        };
        let (config, fast) = run(&text, &sets);
        assert!(
            fast.driver.get("evictions").is_some_and(|n| *n > 0),
            "{name} fits"
        );
        let stepped: Vec<String> = sets
            .iter()
            .cloned()
            .chain(["engine.exact=stepped".to_owned()])
            .collect();
        let (_, mut slow) = run(&text, &stepped);
        // How the result was found is not a part of it.
        (slow.events, slow.ties) = (fast.events, fast.ties);
        assert_eq!(
            fast.to_json().unwrap(),
            slow.to_json().unwrap(),
            "{name}: stepped"
        );
        let options = Options {
            params: small(name).iter().map(|(n, v)| ((*n).to_owned(), *v)).collect(),
            array_bytes: config.workload.array_size.0,
            ..Options::default()
        };
        let made = builtin.program(&options, config.workload.arrays).unwrap();
        let file = folder.path().join(format!("{name}.uvmprog.zst"));
        workloads::program::save(&made, &file).unwrap();
        text = text.replace(
            &format!("kernel = \"{name}\""),
            &format!(
                "program = {:?}\nallocator = \"per-tensor\"",
                file.display().to_string()
            ),
        );
        let (_, read) = run(&text, &[]);
        assert_eq!(
            fast.to_json().unwrap(),
            read.to_json().unwrap(),
            "{name}: from a file"
        );
    }
}

/// `uvmsim workload` with these arguments: exit status, stdout, stderr.
fn workload(args: &[&str]) -> (Option<i32>, String, String) {
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_uvmsim"))
        .arg("workload")
        .args(args)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

#[test]
fn the_command_lists_describes_and_writes() {
    let (code, listed, _) = workload(&[]);
    assert_eq!(code, Some(0));
    for (line, builtin) in listed.lines().zip(Builtin::all()) {
        assert!(line.starts_with(builtin.name()) && line.ends_with(builtin.summary()));
    }
    let names: Vec<&str> = Builtin::all().map(|builtin| builtin.name()).collect();
    let models = workloads::model::CATALOG;
    for (line, entry) in listed.lines().skip(names.len()).zip(models) {
        assert!(line.starts_with(entry.name) && line.ends_with(entry.what));
    }
    assert_eq!(listed.lines().count(), names.len() + models.len());
    let models: Vec<&str> = models.iter().map(|entry| entry.name).collect();
    assert_eq!(uvmsim::config::MODELS, models);
    // A config accepts these names and no others.
    assert_eq!(uvmsim::config::KERNELS, names);

    let (code, about, _) = workload(&["fft", "--set", "scale=20"]);
    assert_eq!(code, Some(0));
    assert!(
        about.contains("2 arrays of 16.00 MiB in all, 3 launches"),
        "{about}"
    );

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nw.uvmprog.zst");
    let name = file.display().to_string();
    let (code, _, _) = workload(&["nw", "--set", "n=64", "-o", &name]);
    assert_eq!(code, Some(0));
    let read = workloads::program::read(&file).unwrap();
    let options = Options {
        params: [("n".to_owned(), 64)].into(),
        ..Options::default()
    };
    assert_eq!(read, Builtin::find("nw").unwrap().program(&options, 1).unwrap());

    for (args, says) in [
        (&["hotspt"][..], "did you mean \"hotspot\"?"),
        (&["nw", "--set", "n=65"], "accepted: multiples of 16"),
        (&["fft", "--set", "scale=99"], "workload.param.scale = 99"),
        (
            &["fft", "--set", "array_size=1GiB"],
            "workload.array_size does not size fft",
        ),
        (
            &["nw", "-o", "no/such/folder/x.uvmprog"],
            "no/such/folder/x.uvmprog",
        ),
    ] {
        let (code, _, error) = workload(args);
        assert_eq!(code, Some(2), "{args:?}");
        assert!(error.contains(says), "{args:?}: {error}");
    }
}
