//! Importers: minimal files of each format, recordings if they are here, and what they refuse.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use workloads::import::{ImportError, Imported, Limits, import};
use workloads::pattern::Walk;
use workloads::program::Op;

fn write(folder: &Path, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

fn read(content: &[u8]) -> Result<Imported, ImportError> {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "recording", content);
    import(&[file], &Limits::default())
}

/// A program that a reader accepts, with as many kernels as its report says.
fn check(imported: &Imported) {
    let mut text = Vec::new();
    workloads::program::write(&imported.program, &mut text).unwrap();
    let again = workloads::program::parse(text.as_slice(), "imported").unwrap();
    assert_eq!(again, imported.program);
    let kernels = again.setup.iter().chain(again.iterations.iter().flatten());
    let kernels = kernels.filter(|op| matches!(op, Op::Kernel { .. })).count();
    assert!(kernels as u64 <= imported.report.kernels);
    assert_eq!(again.iterations.len() as u64, imported.report.iterations);
}

const KINETO: &str = include_str!("../../fuzz/seeds/kineto/kineto.json");

#[test]
fn a_profile_gives_operands_durations_and_lifetimes() {
    let imported = read(KINETO.as_bytes()).unwrap();
    check(&imported);
    let ops = &imported.program.iterations[0];
    let [
        Op::Alloc { t: 0, n: 8192 },
        Op::Alloc { t: 1, n: 8192 },
        kernel,
        Op::Free { t: 1 },
    ] = &ops[..]
    else {
        panic!("{ops:?}");
    };
    let Op::Kernel { name, r, w, ns, .. } = kernel else {
        panic!("{kernel:?}");
    };
    assert_eq!(&**name, "aten::relu");
    // It reads what was there and writes what the op has allocated.
    assert_eq!((r[0].0, w[0].0), (0, 1));
    assert_eq!(*ns, Some(3500));
    // The bare list of events is the same trace.
    let events = &KINETO[KINETO.find('[').unwrap()..];
    let list = &events[events.find(":[").unwrap() + 1..events.len() - 1];
    assert_eq!(
        read(list.as_bytes()).unwrap().program.iterations,
        imported.program.iterations
    );
}

/// Events of an op that launches one kernel on `device`.
fn launch(id: u64, name: &str, dims: &str, device: u64) -> String {
    let at = 100 * id;
    format!(
        r#"{{"ph":"X","cat":"cpu_op","name":"{name}","tid":1,"ts":{at},"dur":50,
            "args":{{"External id":{id},"Input Dims":{dims},"Input type":["float","float"]}}}},
           {{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","tid":1,"ts":"{at}.5","dur":null,
            "args":{{"correlation":{id},"External id":{id}}}}},
           {{"ph":"X","cat":"kernel","name":"k{id}","tid":7,"ts":{at}.75,"dur":2,
            "args":{{"device":{device},"stream":7,"correlation":{id},"External id":{id}}}}},"#
    )
}

#[test]
fn without_memory_events_shapes_say_what_ops_make() {
    let trace = format!(
        r#"{{"traceEvents":[{}{}{}{}{{"ph":"M","name":"process_name","args":null}}]}}"#,
        launch(1, "aten::mm", "[[64,32],[32,16]]", 0),
        launch(2, "aten::relu", "[[64,16]]", 0),
        launch(3, "aten::tanh", "[[64,16]]", 0),
        launch(4, "aten::mm", "[[64,32],[32,16]]", 1),
    );
    let imported = read(trace.as_bytes()).unwrap();
    check(&imported);
    let program = &imported.program;
    let ops = &program.iterations[0];
    // The products of the matrices, and what each function of them makes; nothing of the other device.
    let made: Vec<u64> = ops
        .iter()
        .filter_map(|op| match op {
            Op::Alloc { n, .. } => Some(*n),
            _ => None,
        })
        .collect();
    assert_eq!(made, [4096; 3]);
    let kernels: Vec<_> = ops
        .iter()
        .filter_map(|op| match op {
            Op::Kernel { r, w, .. } => Some((r.iter().map(|p| p.0).collect::<Vec<_>>(), w[0].0)),
            _ => None,
        })
        .collect();
    assert_eq!(kernels.len(), 3);
    // Each reads what the one before has written.
    assert_eq!(kernels[1].0, [kernels[0].1]);
    assert_eq!(kernels[2].0, [kernels[1].1]);
    // The product dies when it has been read for the last time.
    let place = |wanted: &dyn Fn(&Op) -> bool| ops.iter().position(wanted).unwrap();
    let product = kernels[0].1;
    let freed = place(&|op| matches!(op, Op::Free { t } if *t == product));
    let read = place(&|op| matches!(op, Op::Kernel { r, .. } if r.iter().any(|p| p.0 == product)));
    assert_eq!(freed, read + 1);
    // Two inputs of 8 and 2 KiB that were there, and two of three results at a time.
    assert_eq!(imported.report.peak_bytes, (8 << 10) + (2 << 10) + 2 * 4096);
    let assumed = imported.report.assumed.join("\n");
    assert!(
        assumed.contains("3 tensors of 12288 bytes are what ops make"),
        "{assumed}"
    );
    assert!(
        assumed.contains("1 kernels, copies and fills of 1 others are left out"),
        "{assumed}"
    );
}

const EXECUTION: &str = include_str!("../../fuzz/seeds/execution_trace/execution_trace.json");

#[test]
fn an_execution_trace_splits_storages_that_are_used_again() {
    let imported = read(EXECUTION.as_bytes()).unwrap();
    check(&imported);
    assert_eq!(imported.report.kernels, 3);
    // Storage 4 was there before; storage 7 lives twice, with two sizes.
    assert_eq!(imported.program.setup, [Op::Alloc { t: 0, n: 8192 }]);
    let allocs: Vec<u64> = imported.program.iterations[0]
        .iter()
        .filter_map(|op| match op {
            Op::Alloc { n, .. } => Some(*n),
            _ => None,
        })
        .collect();
    assert_eq!(allocs, [8192, 4096]);
}

#[test]
fn a_snapshot_gives_lifetimes() {
    let imported = read(include_bytes!("../../fuzz/seeds/snapshot/snapshot.pickle")).unwrap();
    check(&imported);
    assert_eq!((imported.report.tensors, imported.report.kernels), (1, 2));
}

const WORKLOAD: &str = include_str!("../../fuzz/seeds/g10/g10.json");

#[test]
fn segments_alone_are_a_snapshot() {
    use serde_pickle::{HashableValue::String as Key, SerOptions, Value};
    let dict = |pairs: Vec<(&str, Value)>| {
        Value::Dict(
            pairs
                .into_iter()
                .map(|(key, value)| (Key(key.to_owned()), value))
                .collect(),
        )
    };
    let segment = |device, size| {
        let block = dict(vec![
            ("size", Value::I64(size)),
            ("state", Value::String("active_allocated".to_owned())),
        ]);
        dict(vec![
            ("device", Value::I64(device)),
            ("address", Value::I64(1 << 40)),
            ("total_size", Value::I64(size)),
            ("blocks", Value::List(vec![block])),
        ])
    };
    // `torch.cuda.memory_snapshot()` of two devices: that with more memory is taken.
    let list = Value::List(vec![segment(0, 4096), segment(1, 1 << 20), segment(2, 8192)]);
    let imported = read(&serde_pickle::value_to_vec(&list, SerOptions::new()).unwrap()).unwrap();
    check(&imported);
    assert_eq!(imported.program.setup, [Op::Alloc { t: 0, n: 1 << 20 }]);
    assert!(
        imported
            .report
            .assumed
            .iter()
            .any(|line| line.starts_with("of 3 devices"))
    );
    let other = Value::List(vec![dict(vec![("a", Value::I64(1))])]);
    let error = read(&serde_pickle::value_to_vec(&other, SerOptions::new()).unwrap());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("total_size") && error.contains("is it a snapshot?"),
        "{error}"
    );
}

#[test]
fn a_g10_workload_keeps_its_order_and_times() {
    let imported = read(WORKLOAD.as_bytes()).unwrap();
    check(&imported);
    assert_eq!((imported.report.kernels, imported.report.kernel_ns), (2, 3500));
    let wrong = WORKLOAD.replace("\"last_use\":1", "\"last_use\":0");
    let error = read(wrong.as_bytes()).unwrap_err().to_string();
    assert!(
        error.contains("kernels[1]") && error.contains("tensor 1"),
        "{error}"
    );
}

const TRACE: &str = include_str!("../../fuzz/seeds/accelsim/kernel-1.traceg");

#[test]
fn an_instruction_trace_counts_every_page_of_every_lane() {
    let imported = read(TRACE.as_bytes()).unwrap();
    check(&imported);
    let Some(Op::Kernel { r, w, .. }) = imported.program.iterations[0].last() else {
        panic!("no kernel");
    };
    // 32 lanes of 4 bytes from 0xff0 on reach the second page; the last lane of 16 bytes crosses one too.
    assert_eq!((r[0].1, r[0].2), (0, 8192));
    assert_eq!((w[0].1, w[0].2), (2 << 20, 5 * 4096));
    // A list finds its kernels beside it, and nothing elsewhere.
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "kernel-1.traceg", TRACE.as_bytes());
    let list = write(
        dir.path(),
        "kernelslist.g",
        b"MemcpyHtoD,0x00007f0000000000,8192\nkernel-1.traceg\n",
    );
    let imported = import(&[list], &Limits::default()).unwrap();
    check(&imported);
    assert!(matches!(imported.program.iterations[0][0], Op::H2d { .. }));
    let outside = write(
        dir.path(),
        "other.g",
        b"MemcpyHtoD,0x1000,8\n../kernel-1.traceg\n",
    );
    let error = import(&[outside], &Limits::default()).unwrap_err().to_string();
    assert!(error.contains("none of its kernels is beside it"), "{error}");
}

#[test]
fn blocks_touch_pages_as_recorded() {
    let walk = |text: &str| {
        let imported = read(text.as_bytes()).unwrap();
        check(&imported);
        let Some(Op::Kernel { pattern, rb, wb, .. }) = imported.program.iterations[0].last() else {
            panic!("no kernel");
        };
        let spec = pattern.as_ref().expect("a pattern").as_ref().clone();
        let Walk::Recorded(walk) = spec.walk else {
            panic!("not recorded");
        };
        ((spec.threads, spec.blocks_per_sm), walk, (*rb, *wb))
    };
    // The load reaches two pages, the store waits for it; 5 and 4 sectors, the last 16 bytes across two pages.
    let (shape, one, traffic) = walk(TRACE);
    assert_eq!(shape, (32, None));
    assert_eq!(
        (one.steps, one.blocks.clone()),
        (1, vec![vec![(0, 0, 0, 8192, 1), (0, 1, 0, 5 * 4096, 1)]])
    );
    assert_eq!(traffic, (5 * 32, 5 * 32));
    // A chain: each load needs the one before. Two warps, of two blocks that swap their pages.
    let chain = |second: &str| {
        format!(
            "-kernel name = chase\n-block dim = (64,1,1)\n-nregs = 255\n-accelsim tracer version = 5\n#BEGIN_TB\nwarp = 0\n\
             0000 1 1 R2 LDG.E 1 R2 4 0 0x7f0000000000\n0010 1 1 R4 LDG.E 1 {second} 4 0 0x7f0000001000\n\
             0020 1 1 R4 LDG.E 1 R4 4 0 0x7f0000001020\nwarp = 1\n0000 1 1 R2 LDG.E 1 R9 4 0 0x7f0000000000\n#END_TB\n\
             #BEGIN_TB\nwarp = 0\n0000 1 1 R2 LDG.E 1 R9 4 0 0x7f0000001000\n#END_TB\n"
        )
    };
    let ((threads, per_sm), dependent, _) = walk(&chain("R2"));
    // 256 registers of 64 threads: 4 blocks.
    assert_eq!((threads, per_sm), (64, Some(4)));
    // The third load goes to a page that the second has touched.
    assert_eq!(dependent.steps, 2);
    assert_eq!(
        dependent.blocks,
        [
            vec![(0, 0, 0, 4096, 2), (1, 0, 4096, 4096, 1)],
            vec![(0, 0, 4096, 4096, 1)]
        ]
    );
    let (_, independent, _) = walk(&chain("R8"));
    assert_eq!(independent.steps, 1);
    assert_eq!(independent.blocks[0], [(0, 0, 0, 4096, 2), (0, 0, 4096, 4096, 1)]);
    // Before version 3 every line names its block and warp, and blocks take turns.
    let (_, old, _) = walk(
        "-kernel name = k\n-accelsim tracer version = 2\n\
         1 0 0 0 0000 1 1 R2 LDG.E 1 R9 4 0 0x7f0000001000\n0 0 0 0 0000 1 1 R2 LDG.E 1 R9 4 0 0x7f0000000000\n\
         1 0 0 1 0000 1 1 R2 LDG.E 1 R9 4 0 0x7f0000001000\n",
    );
    assert_eq!(
        old.blocks,
        [vec![(0, 0, 4096, 4096, 2)], vec![(0, 0, 0, 4096, 1)]]
    );
    // Shared and local memory seen through generic addresses is no device memory.
    let generic = TRACE
        .replace("#traces", "-shmem base_addr = 0x00007e0000000000\n#traces")
        .replace(
            "#END_TB",
            "0018 1 1 R4 LD.E 1 R2 4 0 0x7e0000000100\n0020 1 0 LDGSTS.E 2 R6 R9 4 0 0x80 0 0x7f0000004000 0\n#END_TB",
        );
    let (_, kept, _) = walk(&generic);
    assert_eq!(kept.blocks[0].iter().map(|a| a.3).sum::<u64>(), 8 * 4096);
}

#[test]
fn what_cannot_be_imported_says_why() {
    let deep = format!(
        "{{\"traceEvents\":[{{\"args\":{{\"Input Dims\":{}",
        "[".repeat(100_000)
    );
    let nested = format!(
        "{{\"schema\":\"1.1.0\",\"nodes\":[{{\"id\":1,\"name\":\"a\",\"inputs\":{{\"values\":{}1{}}}}}]}}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let half = &KINETO[..KINETO.len() / 2];
    let mut tar = vec![b'a'; 512];
    tar[257..262].copy_from_slice(b"ustar");
    let cases: [(&[u8], &str); 17] = [
        (b"", "the file is empty"),
        (b"hello\n", "not a recording that is known (text)"),
        (b"PK\x03\x04....", "a ZIP archive; unpack it"),
        (&tar, "a TAR archive; unpack it"),
        (b"(dp0\nVsegments\np1\n(lp2\ns.", "protocol 2 or later"),
        // A list of no segments.
        (b"\x80\x02].", "neither segments nor a history"),
        (b"\x7fELF\x00\x00", "binary data"),
        (b"{\"a\":1}", "none of their keys"),
        (b"[1,2]", "without trace events"),
        (
            b"{\"format\":\"uvmprog/1\",\"name\":\"x\"}\n",
            "it is a program already",
        ),
        (b"{\"workload_graph\":[]}", "ExecutionTraceObserver"),
        (b"{\"traceEvents\":[]}", "ProfilerActivity.CUDA"),
        (b"{\"schema\":\"1.0.1\",\"nodes\":[]}", "was the run on the CPU?"),
        (half.as_bytes(), "truncated"),
        (deep.as_bytes(), "recursion limit"),
        (nested.as_bytes(), "recursion limit"),
        (b"SQLite format 3\0....", "SQLite export"),
    ];
    for (content, says) in cases {
        let error = read(content).unwrap_err().to_string();
        assert!(
            error.contains(says),
            "{:?}: {error}",
            String::from_utf8_lossy(&content[..content.len().min(60)])
        );
    }
    for (from, to, says) in [
        ("LDG.E 1 R2 4 1", "LDG.E 1 R2 4 7", "address mode"),
        ("0x7f0000000ff0", "7f0000000ff0", "0x"),
        ("#END_TB\n", "", "truncated"),
        ("ffffffff", "xyz", "mask"),
    ] {
        let error = read(TRACE.replace(from, to).as_bytes()).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("line "), "{error}");
    }
}

const TRAIN: &str = include_str!("../../fuzz/seeds/train_trace/train.jsonl");

/// What is wrong in a training trace is told by its line, before it becomes an invalid program.
#[test]
fn training_traces_are_checked_by_line() {
    check(&read(TRAIN.as_bytes()).unwrap());
    let header = TRAIN.lines().next().unwrap();
    let cases = [
        ("", ":1: the trace ends without an iteration"),
        (
            "{\"k\":\"alloc\",\"a\":4097,\"n\":1024}\n",
            ":2: the trace ends without an iteration",
        ),
        (
            "{\"k\":\"alloc\",\"a\":1,\"n\":0}\n{\"k\":\"iter\",\"i\":0}\n",
            ":2: tensor 0 has 0 bytes",
        ),
        (
            "{\"k\":\"alloc\",\"a\":1,\"n\":18446744073709551615}\n{\"k\":\"iter\",\"i\":0}\n",
            ":2: tensor 0 has 18446744073709551615 bytes",
        ),
        (
            "{\"k\":\"free\",\"a\":1}\n",
            ":2: address 0x1 is freed, but not live",
        ),
    ];
    for (lines, says) in cases {
        let error = read(format!("{header}\n{lines}").as_bytes())
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{lines:?}: {error}");
    }
    // Ranges that end past the last address are cut, too.
    let past = TRAIN.replace("\"r\":[[4096,1024]]", "\"r\":[[4097,18446744073709551615]]");
    assert_ne!(past, TRAIN);
    check(&read(past.as_bytes()).unwrap());
}

/// Columns of an export hold anything that fits 64 bits.
#[test]
fn exports_with_extreme_numbers_are_read_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    for value in [i64::MIN, -1, 0, 1, i64::MAX] {
        for (table, column) in [
            ("CUPTI_ACTIVITY_KIND_KERNEL", "start"),
            ("CUPTI_ACTIVITY_KIND_KERNEL", "end"),
            ("CUPTI_ACTIVITY_KIND_KERNEL", "streamId"),
            ("CUPTI_ACTIVITY_KIND_MEMCPY", "start"),
            ("CUPTI_ACTIVITY_KIND_MEMCPY", "bytes"),
            ("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind"),
            ("CUPTI_ACTIVITY_KIND_MEMCPY", "virtualAddress"),
            ("CUDA_UM_GPU_PAGE_FAULT_EVENTS", "address"),
            ("CUDA_UM_GPU_PAGE_FAULT_EVENTS", "numberOfPageFaults"),
            ("CUDA_UM_CPU_PAGE_FAULT_EVENTS", "address"),
            ("CUDA_GPU_MEMORY_USAGE_EVENTS", "address"),
            ("CUDA_GPU_MEMORY_USAGE_EVENTS", "bytes"),
        ] {
            let seed = include_bytes!("../../fuzz/seeds/nsys/um.sqlite");
            let file = write(dir.path(), "um.sqlite", seed);
            let db = rusqlite::Connection::open(&file).unwrap();
            // Every row, so that sums of them overflow.
            db.execute(&format!("UPDATE {table} SET \"{column}\" = ?"), [value])
                .unwrap();
            drop(db);
            match import(&[file], &Limits::default()) {
                Ok(imported) => check(&imported),
                Err(error) => assert!(
                    error.to_string().contains("expected"),
                    "{table}.{column} = {value}: {error}"
                ),
            }
        }
    }
}

#[test]
fn archives_that_grow_without_end_are_cut_off() {
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
    xz.write_all(TRACE.as_bytes()).unwrap();
    let xz = xz.finish().unwrap();
    assert_eq!(read(&xz).unwrap().report.kernels, 1);
    assert!(
        read(&xz[..xz.len() / 2])
            .unwrap_err()
            .to_string()
            .contains("complete")
    );
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(b"{\"traceEvents\":[").unwrap();
    for _ in 0..2000 {
        bomb.write_all(&[b' '; 10_000]).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "bomb.json.gz", &bomb.finish().unwrap());
    let limits = Limits {
        max_bytes: 1 << 20,
        ..Limits::default()
    };
    let error = import(std::slice::from_ref(&file), &limits)
        .unwrap_err()
        .to_string();
    assert!(error.contains("--max-size"), "{error}");
    let file = write(dir.path(), "events.json", KINETO.as_bytes());
    let limits = Limits {
        max_events: 3,
        ..Limits::default()
    };
    let error = import(&[file], &limits).unwrap_err().to_string();
    assert!(error.contains("more than 3 events"), "{error}");
}

/// A recorded training run without its memory events: names, shapes and autograd's numbers say what is live.
#[test]
fn shapes_alone_give_most_of_the_footprint() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data/traces/kineto_resnet50_v100_memory.json.gz");
    if !file.is_file() {
        println!("skipped: {} is not here", file.display());
        return;
    }
    let recorded = import(std::slice::from_ref(&file), &Limits::default()).unwrap();
    let archive = flate2::read::GzDecoder::new(std::fs::File::open(&file).unwrap());
    let mut trace: serde_json::Value = serde_json::from_reader(archive).unwrap();
    let events = trace["traceEvents"].as_array_mut().unwrap();
    events.retain(|event| event["name"] != "[memory]");
    let inferred = read(trace.to_string().as_bytes()).unwrap();
    check(&inferred);
    // Workspaces of convolutions are not known, so it is less.
    let share = inferred.report.peak_bytes as f64 / recorded.report.peak_bytes as f64;
    assert!((0.75..1.0).contains(&share), "{share}");
}

/// Some editors and shells put a byte-order mark before text.
#[test]
fn a_byte_order_mark_is_no_part_of_a_recording() {
    let text = br#"{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":2,"args":{"device":0,"stream":7}}]}"#;
    let marked = [b"\xef\xbb\xbf".as_slice(), text].concat();
    assert_eq!(read(&marked).unwrap().report, read(text).unwrap().report);
}

/// The figures of the recordings' own descriptions.
#[test]
fn recordings() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    if !folder.is_dir() {
        println!("skipped: {} is not here", folder.display());
        return;
    }
    let from = |names: &[&str]| {
        let files: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
        let imported = import(&files, &Limits::default()).unwrap();
        check(&imported);
        imported.report
    };
    let fact = |report: &workloads::import::Report, name: &str| {
        let found = report.facts.iter().find(|(key, _)| key == name);
        found.map_or_else(
            || panic!("{name} in {:?}", report.facts),
            |(_, value)| value.clone(),
        )
    };
    let r = from(&["traces/kineto_resnet50_v100_memory.json.gz"]);
    // 8,772 kernels and 312 fills; 6 steps.
    assert_eq!((r.kernels, r.iterations), (8772 + 312, 6));
    assert_eq!(fact(&r, "memory events of the GPU"), "8220");
    let r = from(&["traces/kineto_alexnet_a100.json.gz"]);
    assert_eq!(r.kernels, 79 + 3);
    let r = from(&[
        "traces/et_linear_schema_1.0.1.json.gz",
        "traces/kineto_linear_rtx2080ti.json.gz",
    ]);
    assert_eq!(
        fact(&r, "kernels with a recorded duration"),
        format!("{0} of {0}", r.kernels)
    );
    let r = from(&[
        "traces/kineto_toy_memory_2.7.json.gz",
        "traces/et_toy_schema_1.1.1.json.gz",
    ]);
    assert!(fact(&r, "ops paired with the Kineto trace").ends_with("by record function id"));
    for name in ["et_resnet50_schema_1.1.0", "et_triton_schema_1.1.1"] {
        from(&[&format!("traces/{name}.json.gz")]);
    }
    // The snapshots are of the runs whose traces have these peaks.
    let peaks = [
        ("gpt2_b4_s1024_adamw", 9_059_696_640_u64),
        ("resnet50_b64_sgd", 6_912_212_992),
    ];
    for (name, reserved) in peaks {
        let r = from(&[&format!("traces/snapshot_{name}.pickle")]);
        assert_eq!(
            fact(&r, "peak of segment bytes in the history"),
            reserved.to_string()
        );
        let trace = from(&[&format!("models/train/{name}.train.jsonl.gz")]);
        assert_eq!((r.tensors, r.peak_bytes), (trace.tensors, trace.peak_bytes));
    }
    from(&["traces/snapshot_toy_with_frames.pickle"]);
    let r = from(&["traces/nsys_um_synthetic.sqlite"]);
    assert_eq!(
        fact(&r, "unified host to device, page fault"),
        "60 copies, 245760 bytes"
    );
    assert_eq!(
        fact(&r, "unified host to device, prefetch"),
        "60 copies, 20725760 bytes"
    );
    assert_eq!(
        fact(&r, "unified device to host, eviction"),
        "2 copies, 4194304 bytes"
    );
    assert!(fact(&r, "GPU page-fault rows").starts_with("60 "));
    assert_eq!(fact(&r, "CPU page-fault rows"), "320");
    assert_eq!((r.tensors, r.tensor_bytes), (2, 20 << 20));
    let r = from(&["traces/nsys_um_add_rtx2080ti.sqlite"]);
    assert_eq!(r.kernels, 1);
    let r = from(&["traces/accelsim_vectoradd.traceg.gz"]);
    assert_eq!(fact(&r, "thread blocks"), "196");
    let r = from(&["g10/bert-base-bs128.json"]);
    assert_eq!((r.kernels, r.tensors), (1369, 1463));
    assert_eq!((r.tensor_bytes, r.peak_bytes), (79_915_048_960, 25_859_059_712));
    assert_eq!(r.kernel_ns, 5_905_967_103);
}
