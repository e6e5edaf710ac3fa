//! Policies end to end: every pair under all invariants, Belady as the bound, and what is refused.

use std::sync::Arc;

use uvmsim::config::Config;
use uvmsim::config::diagnostic::Source;
use uvmsim::config::document::Extra;
use uvmsim::report::Summary;
use uvmsim::simulate::{Simulator, guarded};

const SCAN: &str = "[workload]\nkernel = \"cyclic-scan\"\narray_size = \"2 MiB\"\narrays = 5\niterations = 2\n[memory]\noversubscription = 2.0\n[engine]\ncheck = true\n";

fn run(text: &str, overrides: &[&str]) -> Summary {
    let source = Arc::new(Source {
        name: "test.toml".into(),
        text: text.into(),
    });
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    let config = Config::from_source(&source, None, &overrides, Extra::Config)
        .unwrap()
        .resolve()
        .unwrap();
    guarded(&Simulator::default(), &config, false).unwrap().summary
}

fn set(eviction: &str, prefetch: &str) -> [String; 2] {
    [
        format!("driver.eviction.policy={eviction}"),
        format!("driver.prefetch.policy={prefetch}"),
    ]
}

#[test]
fn every_pair_keeps_the_invariants_and_belady_is_the_bound() {
    for prefetch in sim_host::prefetch::NAMES {
        let run = |eviction: &str| {
            let [a, b] = set(eviction, prefetch);
            run(SCAN, &[&a, &b])
        };
        let bound = run("belady");
        for eviction in sim_host::eviction::NAMES {
            let result = run(eviction);
            assert_eq!(result.kernels, 10, "{eviction} {prefetch}");
            // With fetches ahead, what is evicted depends on what was fetched too early: no bound there.
            if !["correlation", "planned", "oracle", "stride"].contains(prefetch) {
                assert!(
                    result.driver["evictions"] >= bound.driver["evictions"],
                    "{eviction} {prefetch}"
                );
            }
        }
    }
}

#[test]
fn stepping_gives_the_same_with_a_plan_and_fetches_ahead() {
    let [a, b] = set("belady", "oracle");
    let fast = run(SCAN, &[&a, &b]);
    let stepped = run(SCAN, &[&a, &b, "engine.exact=stepped"]);
    assert_eq!(fast.simulated_ns.to_bits(), stepped.simulated_ns.to_bits());
    assert_eq!(fast.driver, stepped.driver);
}

#[test]
fn a_read_only_scan_has_nothing_to_copy_back() {
    let regular = "[workload]\nkernel = \"regular\"\narray_size = \"16 MiB\"\niterations = 2\n[memory]\noversubscription = 2.0\n";
    let plain = run(regular, &[]);
    let tracked = run(regular, &["driver.dirty_tracking=true"]);
    assert!(plain.driver["evicted_pages"] > 0);
    assert_eq!(tracked.driver["evicted_pages"], 0);
    assert_eq!(tracked.driver["evictions"], plain.driver["evictions"]);
}

#[test]
fn a_batch_of_the_fixed_latency_model_takes_the_latency() {
    let model = [
        "driver.model=fixed-latency",
        "driver.prefetch.policy=none",
        "memory.oversubscription=1.0",
    ];
    let time = |latency: &str| {
        let key = format!("driver.fixed_latency={latency}");
        let result = run(SCAN, &[&model[..], &[key.as_str()]].concat());
        (result.simulated_ns, result.driver["batches"])
    };
    let ((short, batches), (long, more)) = (time("20 us"), time("45 us"));
    assert!(batches > 0 && more > 0);
    let each = (long - short) / 25_000.0;
    assert!(
        each > 0.5 * batches as f64 && each < 1.5 * more.max(batches) as f64,
        "{each} for {batches} and {more} batches"
    );
}

#[test]
fn wrong_names_and_values_are_refused_with_the_nearest() {
    for (setting, hint) in [
        ("driver.eviction.policy=beladi", "belady"),
        ("driver.prefetch.policy=corelation", "correlation"),
        ("driver.model=fixed", "fixed-latency"),
        ("driver.eviction.watermark=51", "50"),
        ("driver.prefetch.degree=0", "1"),
    ] {
        let source = Arc::new(Source {
            name: "test.toml".into(),
            text: SCAN.into(),
        });
        let errors = Config::from_source(&source, None, &[setting.to_owned()], Extra::Config)
            .and_then(|config| config.resolve())
            .expect_err(setting);
        let text = format!("{errors:?}");
        assert!(text.contains(hint), "{setting}: {text}");
    }
}
