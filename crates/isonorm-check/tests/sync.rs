//! What synchronized BatchNorm needs of a GPU's kernels, in the interpreter: right, for tensors that begin anywhere and for teams of many
//! blocks, by every plan, and without moving a byte more than it has to.

use isonorm::GpuProperties;
use isonorm::cuda::{Interpreter, Moved};
use isonorm_check::{Case, InterpreterEngine, Start, run_case, run_suite, suites};

/// The interpreter takes microseconds for an element.
const MOST_ELEMENTS: usize = 32 << 10;

fn cases() -> Vec<Case> {
    let small = |case: &Case| case.desc.get_shape().elements().is_some_and(|n| n <= MOST_ELEMENTS);
    let named = suites().into_iter().filter(|suite| suite.name == "sync");
    named.flat_map(|suite| suite.cases).filter(small).collect()
}

fn known(gpu: &str) -> GpuProperties {
    GpuProperties::known(gpu).expect("a known GPU")
}

/// A GPU with little shared memory, so that a tile is not kept whole.
fn tiny(sms: u32) -> GpuProperties {
    GpuProperties {
        compute_capability: 80,
        sms,
        shared_bytes_per_block: 20 << 10,
        shared_bytes_per_sm: 24 << 10,
        ..known("h200")
    }
}

#[test]
fn every_gpu_has_kernels() {
    let cases = cases();
    for gpu in [known("h200"), known("a100"), tiny(1), tiny(7)] {
        for start in [Start::Aligned, Start::Misaligned] {
            let mut engine = InterpreterEngine::new(Interpreter::new(gpu.clone())).starting(start);
            let report = run_suite(&mut engine, &cases, |_| {});
            assert!(report.passed(), "{report}");
            // Not for f64, nor (masks) for tensors that begin anywhere, nor with numbers whose squares overflow.
            assert!(report.right() > cases.len() / 2, "{report}");
        }
    }
}

#[test]
fn every_plan_is_right() {
    let cases = cases();
    let mut checked = 0;
    for alternative in 1.. {
        let mut engine = InterpreterEngine::new(Interpreter::new(tiny(5))).alternative(alternative);
        let report = run_suite(&mut engine, &cases, |_| {});
        assert!(report.passed() || report.right() == 0, "{alternative}: {report}");
        checked += report.right();
        if report.right() == 0 {
            break;
        }
    }
    assert!(checked > cases.len() / 4, "{checked}");
}

/// Bytes that the kernels of a case read of an argument, and wrote.
fn moved(problem: &str, argument: &str) -> [u64; 2] {
    let case: Case = problem.parse().expect("a valid case");
    let mut engine = InterpreterEngine::new(Interpreter::new(tiny(7)));
    let report = run_case(&mut engine, &case);
    assert!(report.passed, "{report}");
    let found = engine.moved().iter().find(|moved| moved.argument == argument);
    found.map_or(
        [0; 2],
        |Moved {
             read_bytes,
             written_bytes,
             ..
         }| [*read_bytes, *written_bytes],
    )
}

#[test]
fn each_element_is_moved_once() {
    for layout in ["nchw", "nhwc"] {
        let (channels, elements) = (32, 9 * 32 * 12 * 8);
        let problem = |rest: &str| format!("batchnorm x=9x32x12x8 layout={layout} {rest}");
        // Besides, each block reads a sample of its channels.
        let sample = 8 * channels * 7;
        let [read, written] = moved(&problem("affine=none pass=moments"), "x");
        assert!(
            (4 * elements..=4 * (elements + sample)).contains(&read),
            "{layout}: {read}"
        );
        assert_eq!(written, 0);
        let sums = problem("act=relu pass=backward_eval dx=none");
        assert_eq!(moved(&sums, "x"), [4 * elements, 0], "{layout}");
        assert_eq!(moved(&sums, "dy"), [4 * elements, 0], "{layout}");
        let gradient = problem("act=relu residual=add pass=backward_eval dweight=none means=told");
        for input in ["x", "dy", "residual"] {
            assert_eq!(moved(&gradient, input), [4 * elements, 0], "{layout}: {input}");
        }
        for output in ["dx", "dresidual"] {
            assert_eq!(moved(&gradient, output), [0, 4 * elements], "{layout}: {output}");
        }
    }
}
