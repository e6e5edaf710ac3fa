//! Configs: layers, origins, the resolved file, every shipped profile.

use std::sync::Arc;

use uvmsim::config::diagnostic::{ConfigErrors, Source};
use uvmsim::config::document::Extra;
use uvmsim::config::profiles::{EMBEDDED, ProfileKind};
use uvmsim::config::sections::Capacity;
use uvmsim::config::{Config, Origin, ResolvedConfig, schema, show};

fn load(text: &str, overrides: &[&str]) -> Result<Config, ConfigErrors> {
    let source = Arc::new(Source {
        name: "test.toml".into(),
        text: text.into(),
    });
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    Config::from_source(&source, None, &overrides, Extra::Config)
}

fn resolve(text: &str, overrides: &[&str]) -> Result<ResolvedConfig, ConfigErrors> {
    load(text, overrides)?.resolve()
}

const KERNEL: &str = "[workload]\nkernel = \"vector-add\"\n";

#[test]
fn every_key_has_a_value_and_a_source() {
    let config = resolve(KERNEL, &[]).unwrap();
    for key in schema::keys() {
        let resolved = config
            .resolved(key.path)
            .unwrap_or_else(|| panic!("{} has no value", key.path));
        if resolved.origin != Origin::File("test.toml".into(), 2) {
            assert!(resolved.setting.comment().is_some(), "{} has no source", key.path);
        }
        assert!(!key.doc.trim().is_empty());
    }
}

#[test]
fn every_profile_is_complete_and_valid() {
    for profile in EMBEDDED {
        let config = resolve(
            KERNEL,
            &[&format!("hardware.{}={}", profile.kind.table(), profile.name)],
        )
        .unwrap();
        let table = profile.kind.table();
        for (key, resolved) in config
            .all()
            .filter(|(key, _)| key.path.starts_with(&format!("{table}.")))
            // What the program and the machine's owner decide, not the kind of host.
            .filter(|(key, _)| !["host.threads", "host.memory"].contains(&key.path))
        {
            assert_eq!(
                resolved.origin,
                Origin::Profile(profile.name.into()),
                "{} of {}",
                key.path,
                profile.name
            );
            assert!(
                resolved.setting.comment().is_some(),
                "{} of {} has no source",
                key.path,
                profile.name
            );
        }
    }
    assert_eq!(EMBEDDED.iter().filter(|p| p.kind == ProfileKind::Gpu).count(), 10);
}

#[test]
fn example_of_the_documentation() {
    let text = r#"
[study]
name = "gpt2-a100"
seed = 1

[hardware]
gpu  = "a100-80gb-pcie"
link = "pcie4-x16"
host = "xeon-gold-5320"

[gpu]
sms = 108

[memory]
oversubscription = 1.25

[link]
mrrs = "512 B"

[driver]
fault_batch_count = 256
prefetch.enable = true
prefetch.threshold = 51
eviction.policy = "driver"

[host.cost]
interrupt = "2 us"

[workload]
program = "programs/gpt2_b8.uvmprog.zst"
allocator = "pytorch-caching"
iterations = 3

[sweep]
"memory.oversubscription" = [1.0, 1.25, 1.5, 2.0]
"workload.allocator" = ["pytorch-caching", "per-tensor"]
"#;
    let config = load(text, &[]).unwrap();
    assert_eq!(
        config.axes.iter().map(|a| a.values.len()).collect::<Vec<_>>(),
        [4, 2]
    );
    let resolved = config.resolve().unwrap();
    assert_eq!(resolved.memory.oversubscription, Some(1.25));
    assert_eq!(resolved.driver.prefetch_threshold, 51);
    assert_eq!(
        resolved.resolved("gpu.sms").unwrap().origin,
        Origin::File("test.toml".into(), 12)
    );
    assert_eq!(resolved.link_config().mrrs, 512);
}

#[test]
fn layers_win_in_order() {
    let text = format!("{KERNEL}[gpu]\nsms = 7\n[hardware]\ngpu = \"titan-v\"\n");
    let config = resolve(&text, &["gpu.memory=16GiB", "driver.prefetch.enable=false"]).unwrap();
    assert_eq!(config.gpu.sms, 7);
    assert_eq!(config.gpu.memory.0, 16 << 30);
    assert_eq!(config.gpu.utlb_shared_by_sms, 2);
    assert!(!config.driver.prefetch_enable);
    assert_eq!(config.resolved("gpu.memory").unwrap().origin, Origin::Override);
    assert_eq!(
        config.resolved("gpu.clock").unwrap().origin,
        Origin::Profile("titan-v".into())
    );
    assert_eq!(
        config.resolved("driver.copy_split").unwrap().origin,
        Origin::Default
    );
}

#[test]
fn a_later_layer_replaces_the_other_way_to_give_memory() {
    let text = format!("{KERNEL}[memory]\noversubscription = 2.0\n");
    let config = resolve(&text, &["memory.capacity=1 GiB"]).unwrap();
    assert_eq!(config.memory.oversubscription, None);
    assert_eq!(
        config.memory.capacity,
        Capacity::Bytes(sim_core::units::Bytes(1 << 30))
    );
    let config = resolve(
        &format!("{KERNEL}[memory]\ncapacity = \"1 GiB\"\n"),
        &["memory.oversubscription=3"],
    )
    .unwrap();
    assert_eq!(config.memory.oversubscription, Some(3.0));
    let text = format!("{KERNEL}[memory]\noversubscription = 2.0\n");
    let config = resolve(&text, &["memory.capacity=unlimited"]).unwrap();
    assert_eq!(
        (config.memory.oversubscription, config.memory.capacity),
        (None, Capacity::Unlimited)
    );
    // Saying nothing replaces nothing; among overrides the last one wins.
    let config = resolve(&text, &["memory.capacity=device"]).unwrap();
    assert_eq!(config.memory.oversubscription, Some(2.0));
    let both = ["memory.capacity=1GiB", "memory.oversubscription=3"];
    assert_eq!(resolve(&text, &both).unwrap().memory.oversubscription, Some(3.0));
    let baseline = config.baseline().unwrap();
    assert_eq!(
        (baseline.memory.oversubscription, baseline.memory.capacity),
        (None, Capacity::Unlimited)
    );
}

#[test]
fn resolved_file_resolves_to_itself() {
    for overrides in [
        &["memory.oversubscription=1.25"][..],
        &["gpu.fp32=82.6 TFLOP/s", "memory.capacity=9.6 GiB"],
        &[],
    ] {
        let config = resolve(KERNEL, overrides).unwrap();
        let text = show::resolved_toml(&config, false);
        let again = resolve(&text, &[]).unwrap();
        assert_eq!(config.sections, again.sections);
        assert_eq!(config.fingerprint(), again.fingerprint());
        assert_eq!(text, show::resolved_toml(&again, false));
    }
}

#[test]
fn every_value_survives_printing_and_parsing() {
    for profile in EMBEDDED {
        let config = resolve(
            KERNEL,
            &[&format!("hardware.{}={}", profile.kind.table(), profile.name)],
        )
        .unwrap();
        let again = resolve(&show::resolved_toml(&config, true), &[]).unwrap();
        assert_eq!(config.sections, again.sections, "{}", profile.name);
    }
}

#[test]
fn line_ends_marks_and_comments_do_not_matter() {
    let plain = resolve(KERNEL, &[]).unwrap().fingerprint();
    let crlf = KERNEL.replace('\n', "\r\n");
    assert_eq!(resolve(&crlf, &[]).unwrap().fingerprint(), plain);
    assert_eq!(
        resolve(&format!("# only a comment\n{KERNEL}"), &[])
            .unwrap()
            .fingerprint(),
        plain
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bom.toml");
    std::fs::write(&path, format!("\u{feff}{crlf}")).unwrap();
    assert_eq!(
        Config::load(&path, &[]).unwrap().resolve().unwrap().fingerprint(),
        plain
    );
}

#[test]
fn ranges_of_a_sweep() {
    let values = |text: &str| -> Vec<String> {
        let config = load(&format!("[sweep]\n{text}\n"), &[]).unwrap();
        config.axes[0].values.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        values("memory.oversubscription = { from = 1.0, to = 1.5, step = 0.1 }"),
        ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"]
    );
    assert_eq!(
        values("memory.oversubscription = { from = 1.0, to = 8.0, count = 4, log = true }"),
        ["1.0", "2.0", "4.0", "8.0"]
    );
    assert_eq!(
        values("driver.fault_batch_count = { from = 32, to = 128, count = 4 }"),
        ["32", "64", "96", "128"]
    );
    for bad in [
        "memory.oversubscription = { from = 1.0, to = 2.0 }",
        "memory.oversubscription = { from = 1.0, to = 2.0, step = 0.0 }",
        "memory.oversubscription = { from = 1.0, to = 2.0, step = 1e-9 }",
        "memory.oversubscription = { from = -1.0, to = 2.0, count = 3 }",
        "memory.oversubscription = { from = 0.0, to = 2.0, count = 3, log = true }",
        "memory.oversubscription = []",
        "memory.oversubscription = 3",
        "gpu.memory = { from = 1, to = 2, count = 2 }",
        "study.seed = [1, 2]",
        "gpu.smss = [1]",
    ] {
        assert!(load(&format!("[sweep]\n{bad}\n"), &[]).is_err(), "{bad}");
    }
}

#[test]
fn a_profile_of_the_users_own() {
    let dir = tempfile::tempdir().unwrap();
    let profile = EMBEDDED
        .iter()
        .find(|p| p.name == "titan-v")
        .unwrap()
        .text
        .replace("sms = 80 ", "sms = 81 ");
    std::fs::write(dir.path().join("mine.toml"), profile).unwrap();
    let path = dir.path().join("run.toml");
    std::fs::write(&path, format!("{KERNEL}[hardware]\ngpu = \"mine.toml\"\n")).unwrap();
    let config = Config::load(&path, &[]).unwrap().resolve().unwrap();
    assert_eq!(config.gpu.sms, 81);
    let again = resolve(&show::resolved_toml(&config, false), &[]).unwrap();
    assert_eq!(again.gpu, config.gpu);
    std::fs::write(dir.path().join("mine.toml"), "[link]\nlanes = 4\n").unwrap();
    assert!(Config::load(&path, &[]).unwrap().resolve().is_err());
}

/// Panics on one config, succeeds on all others.
struct Fragile;

impl uvmsim::simulate::Simulate for Fragile {
    fn simulate(
        &self,
        config: &ResolvedConfig,
        _records: bool,
        _progress: &mut dyn uvmsim::simulate::Progress,
    ) -> Result<uvmsim::simulate::RunResult, uvmsim::simulate::SimulateError> {
        assert_ne!(config.gpu.sms, 13, "thirteen");
        let mut result = uvmsim::simulate::RunResult::default();
        result.summary.simulated_ns = f64::from(config.gpu.sms);
        Ok(result)
    }
}

#[test]
fn a_panic_is_the_failure_of_one_point() {
    let config = load(&format!("{KERNEL}[sweep]\ngpu.sms = [12, 13, 14]\n"), &[]).unwrap();
    let plan = uvmsim::sweep::plan(&config).unwrap();
    let outcomes = uvmsim::sweep::run(&plan, &Fragile, 2, &|| ()).unwrap();
    assert_eq!(
        outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, false, true]
    );
    assert!(outcomes[1].as_ref().unwrap_err().to_string().contains("thirteen"));
}

#[test]
fn points_that_differ_in_memory_share_their_baseline() {
    let text = format!(
        "{KERNEL}[sweep]\nmemory.oversubscription = [1.0, 2.0]\nworkload.iterations = [1, 2]\ndriver.prefetch.enable = [true, false]\n"
    );
    let plan = uvmsim::sweep::plan(&load(&text, &[]).unwrap()).unwrap();
    assert_eq!((plan.points.len(), plan.baselines.len()), (8, 4));
    let first: Vec<usize> = plan.points.iter().map(|p| p.baseline).collect();
    assert_eq!(first, [0, 1, 2, 3, 0, 1, 2, 3]);
}
