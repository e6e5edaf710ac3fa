//! Rules that connect keys.

use sim_core::units::Bytes;
use workloads::builtin::Builtin;

use super::diagnostic::{ConfigErrors, Diagnostic};
use super::document::Setting;
use super::sections::Capacity;
use super::{Origin, ResolvedConfig};

/// Pairs of keys of which one text may give only one.
const EXCLUDE: [(&str, &str); 4] = [
    ("memory.oversubscription", "memory.capacity"),
    ("workload.program", "workload.kernel"),
    ("workload.program", "workload.model"),
    ("workload.kernel", "workload.model"),
];

/// Launches of a micro-benchmark; its operations are listed in memory, some 450 bytes a launch.
const MOST_LAUNCHES: u64 = 1_000_000;
/// Bytes that the arrays of a scan have together: as much as one array may have.
const MOST_BYTES: u128 = 1 << 44;

/// What one text must not say twice.
pub fn same_layer(settings: &[Setting], errors: &mut Vec<Diagnostic>) {
    for (first, second) in EXCLUDE {
        let find = |path: &str| settings.iter().find(|s| s.key.path == path && !super::neutral(s));
        if let (Some(_), Some(setting)) = (find(first), find(second)) {
            errors.push(
                Diagnostic::new(format!("{first} and {second} exclude each other"))
                    .at(
                        &setting.source,
                        setting.span.clone(),
                        "the other one is given too",
                    )
                    .help("keep one of the two"),
            );
        }
    }
}

/// Checks a resolved config; all violations at once.
///
/// # Errors
/// One diagnostic for each broken rule.
pub fn check(config: &ResolvedConfig) -> Result<(), ConfigErrors> {
    let mut errors = Vec::new();
    let mut rule = |ok: bool, path: &str, message: String, help: &str| {
        if !ok {
            let mut diagnostic = Diagnostic::new(message).help(help);
            if let Some(resolved) = config.resolved(path) {
                let setting = &resolved.setting;
                diagnostic = diagnostic.at(&setting.source, setting.span.clone(), "here");
            }
            errors.push(diagnostic);
        }
    };
    let (gpu, link, driver, memory) = (&config.gpu, &config.link, &config.driver, &config.memory);
    rule(
        link.write_tlp <= link.mps,
        "link.write_tlp",
        format!(
            "link.write_tlp = {} is larger than link.mps = {}",
            link.write_tlp, link.mps
        ),
        "a write carries at most one max payload",
    );
    rule(
        u64::from(driver.fault_batch_count) <= gpu.fault_buffer_entries,
        "driver.fault_batch_count",
        format!(
            "driver.fault_batch_count = {} is larger than gpu.fault_buffer_entries = {}",
            driver.fault_batch_count, gpu.fault_buffer_entries
        ),
        "the driver clamps a batch to the entries of the buffer",
    );
    rule(
        gpu.max_threads_per_sm.is_multiple_of(32),
        "gpu.max_threads_per_sm",
        format!(
            "gpu.max_threads_per_sm = {} is no multiple of 32",
            gpu.max_threads_per_sm
        ),
        "an SM holds whole warps of 32 threads",
    );
    rule(
        memory.reserved.0 + (2 << 20) <= gpu.memory.0,
        "memory.reserved",
        format!(
            "memory.reserved = {} leaves nothing of gpu.memory = {}",
            memory.reserved, gpu.memory
        ),
        "managed data needs at least one root chunk of 2 MiB",
    );
    let taken = super::pinned::taken(memory);
    rule(
        taken == 0 || (memory.capacity == Capacity::Device && memory.oversubscription.is_none()),
        "memory.pinned",
        format!(
            "memory.pinned = {} has no effect when memory.capacity or memory.oversubscription says what is left",
            memory.pinned
        ),
        "it is taken from the memory of the GPU: memory.capacity = \"device\", memory.oversubscription = \"none\"",
    );
    rule(
        taken == 0 || taken.saturating_add(memory.reserved.0).saturating_add(2 << 20) <= gpu.memory.0,
        "memory.pinned",
        format!(
            "memory.pinned = {} in pieces of {} takes {} and leaves nothing of gpu.memory = {} less memory.reserved = {}",
            memory.pinned,
            memory.pinned_piece,
            Bytes(taken),
            gpu.memory,
            memory.reserved
        ),
        "managed data needs at least one root chunk of 2 MiB; a piece takes whole root chunks",
    );
    let workload = &config.workload;
    let builtin = workload.kernel.as_deref().and_then(Builtin::find);
    let given = |path: &str| {
        let resolved = config.resolved(path);
        resolved.is_some_and(|resolved| resolved.origin != Origin::Default)
    };
    if let Some(builtin) = builtin {
        rule(
            builtin.is_sized() || !given("workload.array_size"),
            "workload.array_size",
            format!(
                "workload.array_size does not size {}: it has parameters of its own",
                builtin.name()
            ),
            "`uvmsim workload NAME` lists them",
        );
    } else if let Some((name, _)) = config.param.given().next() {
        rule(
            false,
            &format!("workload.param.{name}"),
            format!("workload.param.{name} is given, but no kernel"),
            "parameters are those of the built-in kernel that workload.kernel names",
        );
    }
    if workload.kernel.as_deref() == Some("cyclic-scan") {
        let launches = u64::from(workload.iterations) * u64::from(workload.arrays);
        rule(
            launches <= MOST_LAUNCHES,
            "workload.arrays",
            format!(
                "workload.arrays = {} times workload.iterations = {} are {launches} launches",
                workload.arrays, workload.iterations
            ),
            "a micro-benchmark launches at most 1000000 kernels",
        );
        let bytes = u128::from(workload.arrays) * u128::from(workload.array_size.0);
        rule(
            bytes <= MOST_BYTES,
            "workload.arrays",
            format!(
                "workload.arrays = {} of workload.array_size = {} are too large",
                workload.arrays, workload.array_size
            ),
            "the arrays of a scan together have at most 16 TiB",
        );
    }
    if let Err(error) = config.link_config().validate() {
        let path = format!("link.{}", convert_link_key(error.key));
        rule(
            false,
            &path,
            error.to_string(),
            "see `uvmsim explain` for the range of each key",
        );
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ConfigErrors(errors))
    }
}

/// The config's name of a field of the link.
fn convert_link_key(field: &str) -> &str {
    match field {
        "one_way" => "one_way_latency",
        "host_read" => "host_read_latency",
        "completions" => "completion_policy",
        other => other,
    }
}
