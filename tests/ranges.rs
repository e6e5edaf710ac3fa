//! Every value that a key accepts can be simulated, or is refused as input: the ends of every range.

use std::sync::Arc;

use uvmsim::config::diagnostic::Source;
use uvmsim::config::document::Extra;
use uvmsim::config::schema::Key;
use uvmsim::config::value::Kind;
use uvmsim::config::{Config, schema};
use uvmsim::simulate::{SimulateError, Simulator, guarded};

/// Small, and does not fit.
const SMALL: &str = "[workload]\nkernel = \"vector-add\"\narray_size = \"8 MiB\"\niterations = 1\n\
                     [memory]\noversubscription = 1.5\n";

/// Keys whose largest value asks for more work than a test has time for.
const LARGE: [&str; 2] = ["workload.iterations", "workload.array_size"];

/// The smallest and the largest value of a key, as an override gives them.
fn ends(key: &Key) -> Vec<String> {
    let ends: Vec<String> = match key.kind {
        Kind::Time { min, max } => vec![min.to_string(), max.to_string()],
        Kind::Bytes { min, max, .. } => vec![format!("{min} B"), format!("{max} B")],
        Kind::Int { min, max } => vec![min.to_string(), max.to_string()],
        Kind::Ratio { min, max, .. } => vec![min.max(1e-12).to_string(), max.to_string()],
        Kind::OneOf(set) => set.iter().map(u64::to_string).collect(),
        Kind::Choice(names) => names.iter().map(|name| (*name).to_string()).collect(),
        Kind::Bandwidth | Kind::Frequency | Kind::Flops => {
            let range = key.kind.range();
            range.split(" to ").map(str::to_string).collect()
        }
        Kind::Bool => vec!["true".into(), "false".into()],
        Kind::Text => vec![],
    };
    let kept = if LARGE.contains(&key.path) { 1 } else { ends.len() };
    ends.into_iter().take(kept).collect()
}

#[test]
fn the_ends_of_every_range() {
    let source = Arc::new(Source {
        name: "small.toml".into(),
        text: SMALL.into(),
    });
    let simulator = Simulator::default();
    let (mut simulated, mut refused) = (0, 0);
    // The parameters of kernels have ranges of each kernel's own.
    // A model or a kernel of its default size asks for minutes; what describes them is tested by theirs.
    let described = |path: &str| {
        path.starts_with("workload.param.")
            || path.starts_with("workload.model")
            || path == "workload.kernel"
            || path == "workload.batch_size"
    };
    for key in schema::keys().filter(|key| !described(key.path)) {
        for value in ends(key) {
            let set = format!("{}={value}", key.path);
            // A value inside its own range is never refused for itself, only for another key's sake.
            let config = Config::from_source(&source, None, std::slice::from_ref(&set), Extra::Config)
                .unwrap_or_else(|errors| panic!("{set}: {}", errors.render(false)));
            let Ok(config) = config.resolve() else {
                refused += 1;
                continue;
            };
            match guarded(&simulator, &config, false) {
                Ok(result) => {
                    assert!(result.summary.events > 0, "{set}");
                    simulated += 1;
                }
                Err(SimulateError::Input(_)) => refused += 1,
                Err(SimulateError::Internal(message)) => panic!("{set}: {message}"),
            }
        }
    }
    println!("{simulated} simulated, {refused} refused");
    assert!(
        simulated > 4 * refused,
        "{simulated} simulated, {refused} refused"
    );
}
