//! Any specification gives a whole program or a refusal that names the key; never a panic.

use proptest::prelude::*;
use proptest::sample::select;
use workloads::model::{
    Attention, CATALOG, Convolution, Implementation, ModelError, ModelSpec, Optimizer, Precision, Style,
    Targets, Task, ZeroGrad, forward, generate,
};
use workloads::program::{Op, Program, parse, write};

/// Small ones: the large sizes of a family have the same layers.
fn names() -> Vec<&'static str> {
    CATALOG
        .iter()
        .map(|entry| entry.name)
        .filter(|name| !name.ends_with("-xl") && !name.ends_with("-large") && *name != "resnet152")
        .collect()
}

/// A number, or none: near the limits of images and sequences, and beyond.
fn maybe(most: u64) -> impl Strategy<Value = Option<u64>> {
    prop_oneof![3 => Just(None), 2 => (0..=most).prop_map(Some), 1 => Just(Some(u64::MAX))]
}

prop_compose! {
    fn styles()(
        convolution in select(vec![Convolution::Implicit, Convolution::Implicit, Convolution::Native]),
        attention in select(vec![Attention::Fused, Attention::Fused, Attention::Eager]),
        composed in prop::bool::weighted(0.3),
        dropout in prop::bool::weighted(0.8),
        targets in select(vec![Targets::Indices, Targets::Indices, Targets::Probabilities]),
        classes in prop_oneof![3 => Just(None), 1 => select(vec![Some(1), Some(10), Some(u64::MAX)])],
        relu_inplace in prop::bool::weighted(0.8),
        conv_bias in prop::bool::weighted(0.2),
        shortcut_clone in prop::bool::weighted(0.2),
        adds_in_place in any::<bool>(),
    ) -> Style {
        Style {
            convolution, attention, composed, dropout, targets, classes, relu_inplace, conv_bias, shortcut_clone,
            adds_in_place,
        }
    }
}

prop_compose! {
    fn specs()(
        name in select(names()),
        batch in prop_oneof![9 => 1_u64..64, 1 => select(vec![0, 1 << 20, u64::MAX])],
        sequence in maybe(1100),
        image in maybe(320),
        precision in select(vec![Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Fp16]),
        optimizer in select(vec![
            None, Some(Optimizer::Sgd), Some(Optimizer::Momentum), Some(Optimizer::Adam), Some(Optimizer::AdamW),
        ]),
        implementation in select(vec![Implementation::Foreach, Implementation::Fused]),
        checkpointing in any::<bool>(),
        accumulation in prop_oneof![9 => 1_u32..4, 1 => select(vec![0, 1025])],
        zero_grad in select(vec![ZeroGrad::AfterStep, ZeroGrad::BeforeBackward]),
        task in select(vec![Task::Training, Task::Training, Task::Inference]),
        tokens in 0_u32..5,
        iterations in 1_u32..4,
        lengths in prop_oneof![4 => Just(0_usize), 1 => 1_usize..4],
        style in prop_oneof![2 => Just(Style::default()), 1 => styles()],
    ) -> ModelSpec {
        ModelSpec {
            batch, sequence, image, precision, optimizer, implementation, checkpointing, accumulation,
            zero_grad, task, tokens, iterations, style,
            sequences: (0..lengths as u64).map(|i| 20 + 7 * i).collect(),
            ..ModelSpec::new(name)
        }
    }
}

/// Bytes allocated and not freed after the setup and after each iteration.
fn live(program: &Program) -> Vec<u64> {
    let mut sizes = std::collections::HashMap::new();
    std::iter::once(&program.setup)
        .chain(&program.iterations)
        .map(|ops| {
            for op in ops {
                match op {
                    Op::Alloc { t, n } => assert!(sizes.insert(*t, *n).is_none(), "{t} is live already"),
                    Op::Free { t } => assert!(sizes.remove(t).is_some(), "{t} is not live"),
                    _ => {}
                }
            }
            sizes.values().sum()
        })
        .collect()
}

/// FLOPs of an iteration.
fn flops(ops: &[Op]) -> u128 {
    ops.iter()
        .map(|op| {
            if let Op::Kernel { flops, .. } = op {
                u128::from(*flops)
            } else {
                0
            }
        })
        .sum()
}

#[test]
fn the_largest_of_all_models_are_counted_without_overflow() {
    for entry in CATALOG {
        let spec = ModelSpec {
            batch: 1 << 20,
            sequence: entry.sequence.map(|(_, most)| most),
            image: entry.image.map(|_| 4096),
            iterations: 1,
            ..ModelSpec::new(entry.name)
        };
        assert!(forward(&spec).unwrap().flops() > 0, "{}", entry.name);
        let program = generate(&spec).unwrap();
        assert!(flops(&program.iterations[0]) > 0, "{}", entry.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_specification_is_generated_or_refused(spec in specs()) {
        match generate(&spec) {
            Err(ModelError::Parameter { key, value, model, accepted }) => {
                prop_assert!(!key.is_empty() && !value.is_empty() && !accepted.is_empty());
                prop_assert_eq!(model, spec.name);
            }
            Err(error) => prop_assert!(false, "{}", error),
            Ok(program) => {
                let most = (spec.iterations as usize).max(spec.sequences.len());
                prop_assert_eq!(program.iterations.len(), most);
                // The reader checks that accesses lie in live tensors and that nothing is freed twice.
                let mut text = Vec::new();
                write(&program, &mut text).unwrap();
                prop_assert_eq!(&parse(text.as_slice(), "model").unwrap(), &program);
                // From the second iteration on nothing grows.
                let live = live(&program);
                for pair in live[1..].windows(2) {
                    prop_assert_eq!(pair[0], pair[1]);
                }
                for (at, pair) in program.iterations.windows(2).enumerate() {
                    let longer = at + 1 < spec.sequences.len();
                    prop_assert_eq!(flops(&pair[0]) < flops(&pair[1]), longer);
                }
                if spec.task == Task::Inference {
                    prop_assert_eq!(live[0], live[1]);
                }
            }
        }
    }

    #[test]
    fn flops_grow_with_the_batch_and_not_with_the_precision(spec in specs(), batch in 1_u64..16) {
        // Linear with a constant: Llama's table of rotations is made once for all samples.
        let at = |batch, precision| {
            forward(&ModelSpec { batch, precision, ..spec.clone() }).map(|tape| tape.flops())
        };
        if let (Ok(one), Ok(two)) = (at(1, spec.precision), at(2, spec.precision)) {
            let line = one + (batch - 1) * (two - one);
            prop_assert!(two > one && two <= 2 * one, "{} {}", one, two);
            prop_assert_eq!(at(batch, spec.precision).unwrap(), line);
            prop_assert_eq!(at(batch, Precision::Bf16).unwrap(), line);
        }
    }
}
