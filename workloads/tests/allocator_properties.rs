//! The caching allocator under random requests and random options: what has to hold after every step.

use std::collections::BTreeMap;

use proptest::prelude::*;
use workloads::allocator::caching::device::DeviceMemory;
use workloads::allocator::caching::snapshot::BlockState;
use workloads::allocator::caching::{Action, Options};
use workloads::allocator::{AllocError, Backing, CachingAllocator};

const MIB: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
enum Step {
    Malloc { bytes: u64, stream: u64 },
    Free { which: usize },
    Record { which: usize, stream: u64 },
    Events { pending: bool },
    EmptyCache,
}

fn step() -> impl Strategy<Value = Step> {
    // As many small sizes as large ones.
    let bytes = (0_u32..27, any::<u64>()).prop_map(|(exponent, low)| (1 << exponent) + low % (1 << exponent));
    prop_oneof![
        8 => (bytes, 0_u64..3).prop_map(|(bytes, stream)| Step::Malloc { bytes, stream: stream * 7 }),
        6 => any::<usize>().prop_map(|which| Step::Free { which }),
        2 => (any::<usize>(), 0_u64..3).prop_map(|(which, stream)| Step::Record { which, stream: stream * 7 }),
        1 => any::<bool>().prop_map(|pending| Step::Events { pending }),
        1 => Just(Step::EmptyCache),
    ]
}

/// Option strings that PyTorch takes.
fn conf() -> impl Strategy<Value = String> {
    let one = prop_oneof![
        (20_u64..120).prop_map(|n| format!("max_split_size_mb:{n}")),
        (20_u64..64).prop_map(|n| format!("max_non_split_rounding_mb: {n}")),
        (0_u32..5).prop_map(|n| format!("roundup_power2_divisions:{}", 1 << n)),
        (0_u32..5, 0_u32..4).prop_map(|(a, b)| format!(
            "roundup_power2_divisions:[{}:{},>:{}]",
            1 << a,
            1 << b,
            1 << (b + 1)
        )),
        (1_u32..100).prop_map(|n| format!("garbage_collection_threshold:0.{n:02}")),
        Just("expandable_segments:True".to_owned()),
        (10_u64..64).prop_map(|n| format!("large_segment_size_mb:{n}")),
        (20_u32..100).prop_map(|n| format!("per_process_memory_fraction:0.{n}")),
        Just("backend:native".to_owned()),
    ];
    prop::collection::vec(one, 0..4).prop_map(|parts| parts.join(","))
}

/// A tensor as the test knows it.
#[derive(Clone, Copy, Debug)]
struct Tensor {
    address: u64,
    requested: u64,
}

/// Everything that has to hold between two calls.
fn check(
    allocator: &CachingAllocator,
    options: &Options,
    tensors: &[Tensor],
    backed: u64,
    limit: u64,
) -> Result<(), TestCaseError> {
    let stats = allocator.stats();
    let (mut reserved, mut allocated, mut active) = (0, 0, 0);
    let (mut split_bytes, mut split) = (0, 0);
    let mut live = BTreeMap::new();
    let mut end = 0;
    for segment in allocator.snapshot() {
        // Pieces of expandable ranges begin where something was unmapped.
        let unit = if options.expandable_segments { 512 } else { 2 * MIB };
        prop_assert!(
            segment.address >= end && segment.address.is_multiple_of(unit),
            "{segment:?}"
        );
        let mut at = segment.address;
        let mut was_free = false;
        for block in &segment.blocks {
            prop_assert_eq!(block.address, at, "blocks tile their segment");
            prop_assert!(block.size > 0 && block.size.is_multiple_of(512), "{:?}", block);
            at += block.size;
            let free = block.state == BlockState::Inactive;
            prop_assert!(!(free && was_free), "free neighbours are merged: {:?}", segment);
            was_free = free;
            if block.state == BlockState::ActiveAllocated {
                allocated += block.size;
                live.insert(block.address, (block.size, block.requested));
            }
            if !free {
                active += block.size;
            } else if segment.blocks.len() > 1 {
                split_bytes += block.size;
                split += 1;
            }
        }
        prop_assert_eq!(at, segment.address + segment.size);
        end = at;
        reserved += segment.size;
    }
    prop_assert_eq!(stats.reserved_bytes.all.current, reserved);
    prop_assert_eq!(stats.allocated_bytes.all.current, allocated);
    prop_assert_eq!(stats.active_bytes.all.current, active);
    prop_assert_eq!(stats.allocation.all.current, tensors.len() as u64);
    prop_assert_eq!(
        backed,
        reserved,
        "what the runtime was asked for is what there is"
    );
    if options.expandable_segments {
        (split_bytes, split) = (0, 0);
    }
    prop_assert_eq!(stats.inactive_split_bytes.all.current, split_bytes);
    prop_assert_eq!(stats.inactive_split.all.current, split);
    for stat in [
        stats.reserved_bytes,
        stats.allocated_bytes,
        stats.active_bytes,
        stats.requested_bytes,
        stats.allocation,
        stats.active,
        stats.segment,
        stats.inactive_split,
        stats.inactive_split_bytes,
    ] {
        prop_assert_eq!(stat.all.current, stat.all.allocated - stat.all.freed);
        prop_assert_eq!(
            stat.all.current,
            stat.small_pool.current + stat.large_pool.current
        );
        prop_assert!(stat.all.peak >= stat.all.current);
    }
    prop_assert!(reserved <= limit, "{} of {}", reserved, limit);
    prop_assert_eq!(live.len(), tensors.len());
    for tensor in tensors {
        let (size, requested) = live[&tensor.address];
        prop_assert_eq!(requested, tensor.requested);
        prop_assert!(Some(size) >= options.round(requested));
    }
    Ok(())
}

fn drive(conf: &str, mebibytes: u64, steps: &[Step]) -> Result<Vec<(Action, u64, u64)>, TestCaseError> {
    let options = Options::parse(conf).map_err(|error| TestCaseError::fail(format!("{conf}: {error}")))?;
    let capacity = mebibytes * MIB;
    let limit = options
        .memory_fraction
        .map_or(capacity, |fraction| (fraction * capacity as f64) as u64);
    // The fraction is checked for the request; an expandable range then grows by whole granules.
    let slack = if options.expandable_segments {
        options.large_segment
    } else {
        0
    };
    let limit = (limit + slack).min(capacity);
    let mut allocator = CachingAllocator::new(options.clone(), DeviceMemory::device(capacity));
    allocator.keep_log();
    let (mut tensors, mut backing, mut backed) = (Vec::<Tensor>::new(), Vec::new(), BTreeMap::new());
    let settle =
        |allocator: &mut CachingAllocator, backing: &mut Vec<Backing>, backed: &mut BTreeMap<u64, u64>| {
            allocator.drain_backing(backing);
            for change in backing.drain(..) {
                match change {
                    Backing::Allocate(range) => assert_eq!(backed.insert(range.start, range.bytes), None),
                    Backing::Free(range) => assert_eq!(backed.remove(&range.start), Some(range.bytes)),
                }
            }
        };
    for step in steps {
        match *step {
            Step::Malloc { bytes, stream } => match allocator.malloc(bytes, stream) {
                Ok(address) => tensors.push(Tensor {
                    address,
                    requested: bytes,
                }),
                Err(AllocError::OutOfMemory { free, reserved, .. }) => {
                    prop_assert_eq!(free, capacity - reserved);
                }
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            },
            Step::Free { which } if !tensors.is_empty() => {
                let tensor = tensors.swap_remove(which % tensors.len());
                allocator.free(tensor.address);
                // A second time, it is nobody's.
                allocator.free(tensor.address);
            }
            Step::Record { which, stream } if !tensors.is_empty() => {
                allocator.record_stream(tensors[which % tensors.len()].address, stream);
            }
            Step::Events { pending } => allocator.set_events_pending(pending),
            Step::EmptyCache => allocator.empty_cache(),
            Step::Free { .. } | Step::Record { .. } => {}
        }
        settle(&mut allocator, &mut backing, &mut backed);
        check(&allocator, &options, &tensors, backed.values().sum(), limit)?;
    }
    for tensor in std::mem::take(&mut tensors) {
        allocator.free(tensor.address);
    }
    allocator.empty_cache();
    settle(&mut allocator, &mut backing, &mut backed);
    check(&allocator, &options, &tensors, backed.values().sum(), limit)?;
    prop_assert_eq!(allocator.reserved_bytes(), 0, "nothing is left");
    Ok(allocator
        .log()
        .iter()
        .map(|entry| (entry.action, entry.address, entry.size))
        .collect())
}

proptest! {
    #[test]
    fn blocks_never_overlap_and_sums_agree(
        conf in conf(),
        mebibytes in 64_u64..1024,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let first = drive(&conf, mebibytes, &steps)?;
        prop_assert_eq!(first, drive(&conf, mebibytes, &steps)?, "the same again");
    }

    #[test]
    fn any_option_string_is_taken_or_refused(
        text in prop::collection::vec(prop_oneof![
            Just("max_split_size_mb"), Just("roundup_power2_divisions"), Just("expandable_segments"),
            Just("garbage_collection_threshold"), Just("per_process_memory_fraction"), Just("large_segment_size_mb"),
            Just(":"), Just(":"), Just(":"), Just(","), Just(","), Just("["), Just("]"), Just(">"), Just("True"),
            Just("20"), Just("64"), Just("0"), Just("1"), Just("0.5"), Just("9223372036854775808"), Just("-3"),
            Just("nan"), Just(" "), Just("\u{1f980}"),
        ], 0..14),
        bytes in any::<u64>(),
    ) {
        let text = text.concat();
        match Options::parse(&text) {
            Ok(options) => {
                for bytes in [bytes, bytes >> 20, bytes >> 40, bytes >> 60] {
                    if let Some(rounded) = options.round(bytes) {
                        prop_assert!(rounded >= bytes && rounded.is_multiple_of(512), "{}: {}", text, bytes);
                    }
                }
            }
            Err(error) => {
                let error = error.to_string();
                prop_assert!(error.contains("accepted") || error.contains("NAME:VALUE"), "{}", error);
            }
        }
    }
}
