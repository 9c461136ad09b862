//! LayerNorm and RMSNorm forward in the interpreter, against the definitions in `f64`.

use isonorm_kernels::interpreter::{Buffers, Launch, Report};
use isonorm_kernels::rows::Data;
use isonorm_kernels::rows::forward::{Activate, Args, Key};
use isonorm_math::activation::{Gelu, GeluTanh, HardSwish, Identity, LeakyRelu, Relu, Sigmoid, Silu, Tanh};
use isonorm_math::{Bf16, F16};

const EPS: f32 = 1e-5;
const SLOPE: f32 = 0.25;
const F32_UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// How a case lies in memory, and what it has.
#[derive(Clone, Copy)]
struct Case {
    key: Key,
    threads: u32,
    rows: usize,
    columns: usize,
    /// Elements between the end of a row and the start of the next.
    gap: usize,
    /// Elements before the first row: moves it away from an aligned address.
    lead: usize,
    affine: bool,
    residual: bool,
    in_place: bool,
    seed: u64,
}

impl Case {
    fn new(key: Key, threads: u32, columns: usize) -> Self {
        Self {
            key,
            threads,
            rows: 3,
            columns,
            gap: 0,
            lead: 0,
            affine: true,
            residual: false,
            in_place: false,
            seed: columns as u64,
        }
    }

    fn stride(&self) -> usize {
        self.columns + self.gap
    }

    fn elements(&self) -> usize {
        self.lead + self.rows * self.stride()
    }

    fn grid(&self) -> u32 {
        let teams = if self.key.block { 1 } else { self.threads / 32 };
        // One block less than would do, where there are several: some have a second row.
        (self.rows as u32).div_ceil(teams).saturating_sub(1).max(1)
    }
}

struct Output<T> {
    y: Vec<T>,
    mean: Vec<f32>,
    rstd: Vec<f32>,
    report: Report,
}

struct Input<T> {
    x: Vec<T>,
    residual: Vec<T>,
    weight: Vec<f32>,
    bias: Vec<f32>,
}

fn input<T: Data>(case: &Case, mut value: impl FnMut(&mut fastrand::Rng) -> f32) -> Input<T> {
    let mut random = fastrand::Rng::with_seed(case.seed);
    Input {
        x: (0..case.elements()).map(|_| T::from_acc(value(&mut random))).collect(),
        residual: (0..case.elements()).map(|_| T::from_acc(random.f32() - 0.5)).collect(),
        weight: (0..case.columns).map(|_| random.f32() + 0.5).collect(),
        bias: (0..case.columns).map(|_| random.f32() - 0.5).collect(),
    }
}

fn run<T: Data, A: Activate>(case: &Case, input: &Input<T>) -> Output<T> {
    let poison = T::from_acc(f32::NAN);
    let mut output = Output {
        y: vec![poison; case.elements()],
        mean: vec![f32::NAN; case.rows],
        rstd: vec![f32::NAN; case.rows],
        report: Report::default(),
    };
    let null = |there: bool, place: *const f32| if there { place } else { std::ptr::null() };
    if case.in_place {
        output.y.clone_from(&input.x);
    }
    let mut buffers = Buffers::new();
    let x = buffers.read_only("x", &input.x);
    let y = buffers.writable("y", &mut output.y);
    let residual = buffers.read_only("residual", &input.residual).wrapping_add(case.lead);
    let args = Args {
        x: if case.in_place { y.cast_const() } else { x }.wrapping_add(case.lead),
        residual: if case.residual { residual } else { std::ptr::null() },
        weight: null(case.affine, buffers.read_only("weight", &input.weight)),
        bias: null(case.affine, buffers.read_only("bias", &input.bias)),
        y: y.wrapping_add(case.lead),
        mean: buffers.writable("mean", &mut output.mean),
        rstd: buffers.writable("rstd", &mut output.rstd),
        rows: case.rows as u64,
        x_stride: case.stride() as u64,
        residual_stride: case.stride() as u64,
        y_stride: case.stride() as u64,
        columns: case.columns as u32,
        eps: EPS,
        slope: SLOPE,
    };
    let launch = Launch::new(case.grid(), case.threads)
        .shared_bytes(case.key.shared_bytes())
        .seed(case.seed);
    // SAFETY: the interpreter checks every access.
    let report = launch.run(&buffers, || unsafe { case.key.interpret::<T, A>(&args) });
    output.report = report.unwrap_or_else(|fault| panic!("{:?} with {} columns: {fault}", case.key, case.columns));
    output
}

/// Compares with the definitions; `unit` is the unit roundoff of `T`.
fn check<T: Data, A: Activate>(case: &Case, input: &Input<T>, unit: f64) {
    let output = run::<T, A>(case, input);
    let activation = A::with_slope(SLOPE);
    for row in 0..case.rows {
        let start = case.lead + row * case.stride();
        let x: Vec<f64> = input.x[start..start + case.columns]
            .iter()
            .map(|x| f64::from(x.to_acc()))
            .collect();
        let count = case.columns as f64;
        let mean = if case.key.centred {
            x.iter().sum::<f64>() / count
        } else {
            0.0
        };
        let var = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        let rstd = 1.0 / (var + f64::from(EPS)).sqrt();
        // Sums of up to 32 numbers a thread and 10 levels of a tree, each rounded once.
        let sums = 64.0 * F32_UNIT;
        close(f64::from(output.rstd[row]), rstd, sums * rstd, "rstd", case);
        close(
            f64::from(output.mean[row]),
            mean,
            sums * (var.sqrt() + mean.abs() * F32_UNIT) + F32_UNIT * mean.abs(),
            "mean",
            case,
        );
        for (i, &x) in x.iter().enumerate() {
            let xhat = (x - mean) * rstd;
            let (weight, bias) = if case.affine {
                (input.weight[i], input.bias[i])
            } else {
                (1.0, 0.0)
            };
            let (weight, bias) = (f64::from(weight), f64::from(bias));
            let residual = if case.residual {
                f64::from(input.residual[start + i].to_acc())
            } else {
                0.0
            };
            let expected = activation.apply(xhat * weight + bias + residual);
            // Derivatives of the activations stay below 1.2.
            let before = sums * ((xhat.abs() + 1.0) * weight.abs() + bias.abs() + residual.abs());
            let smallest = f64::from(T::from_acc(1e-7).to_acc());
            let bound = 1.2 * before + (unit + 4.0 * F32_UNIT) * expected.abs() + smallest;
            close(f64::from(output.y[start + i].to_acc()), expected, bound, "y", case);
        }
        for gap in &output.y[start + case.columns..start + case.stride()] {
            assert!(gap.to_acc().is_nan(), "a gap between rows was written");
        }
    }
}

#[track_caller]
fn close(got: f64, expected: f64, bound: f64, what: &str, case: &Case) {
    let Case {
        key,
        columns,
        lead,
        gap,
        ..
    } = case;
    assert!(
        (got - expected).abs() <= bound,
        "{what}: got {got}, expected {expected} within {bound:e} ({key:?}, {columns} columns, lead {lead}, gap {gap})"
    );
}

/// A key and a number of threads for each team that can hold such a row.
fn teams(columns: usize, element_bytes: u32) -> Vec<(Key, u32)> {
    let threads = |key: &Key| if key.block { [32, 128, 512].to_vec() } else { vec![64] };
    let pairs = Key::all().flat_map(|key| threads(&key).into_iter().map(move |threads| (key, threads)));
    pairs
        .filter(|(key, threads)| {
            let team = if key.block { *threads } else { 32 };
            key.max_columns(team, element_bytes) as usize >= columns
        })
        .collect()
}

fn sizes<T: Data>(unit: f64) {
    for columns in [1, 2, 31, 32, 33, 127, 1000, 1024, 4096] {
        for (key, threads) in teams(columns, size_of::<T>() as u32) {
            let case = Case::new(key, threads, columns);
            check::<T, Identity>(&case, &input(&case, |random| random.f32() * 4.0 - 1.0), unit);
        }
    }
}

#[test]
fn awkward_sizes_f32() {
    sizes::<f32>(F32_UNIT);
}

#[test]
fn awkward_sizes_f16() {
    sizes::<F16>(2f64.powi(-11));
}

#[test]
fn awkward_sizes_bf16() {
    sizes::<Bf16>(2f64.powi(-8));
}

fn placements<T: Data>(unit: f64) {
    for (lead, gap) in [(1, 0), (0, 1), (3, 2), (8, 7), (5, 8)] {
        for columns in [1, 33, 127, 128, 1000] {
            for centred in [true, false] {
                let key = Key {
                    centred,
                    block: true,
                    vectors: 2,
                };
                let mut case = Case::new(key, 128, columns);
                (case.lead, case.gap, case.residual, case.affine) = (lead, gap, gap % 2 == 0, lead != 3);
                check::<T, Identity>(&case, &input(&case, |random| random.f32()), unit);
            }
        }
    }
}

#[test]
fn misaligned_and_strided_rows() {
    placements::<f32>(F32_UNIT);
    placements::<Bf16>(2f64.powi(-8));
}

#[test]
fn warps_with_rows_of_their_own() {
    let key = Key {
        centred: true,
        block: false,
        vectors: 1,
    };
    for (rows, columns) in [(1, 5), (4, 128), (9, 77), (33, 1)] {
        let mut case = Case::new(key, 128, columns);
        case.rows = rows;
        check::<f32, Identity>(&case, &input(&case, |random| random.f32()), F32_UNIT);
    }
}

#[test]
fn every_activation() {
    fn one<A: Activate>() {
        let key = Key {
            centred: true,
            block: false,
            vectors: 2,
        };
        let mut case = Case::new(key, 64, 100);
        case.residual = true;
        check::<f32, A>(&case, &input(&case, |random| random.f32()), F32_UNIT);
    }
    one::<Identity>();
    one::<Relu>();
    one::<LeakyRelu>();
    one::<Silu>();
    one::<Gelu>();
    one::<GeluTanh>();
    one::<Sigmoid>();
    one::<Tanh>();
    one::<HardSwish>();
}

#[test]
fn large_mean() {
    for mean in [100.0, 1e6] {
        let case = Case::new(
            Key {
                centred: true,
                block: true,
                vectors: 2,
            },
            128,
            1000,
        );
        check::<f32, Identity>(&case, &input(&case, |random| mean + random.f32()), F32_UNIT);
    }
}

#[test]
fn constant_rows_give_exactly_the_bias() {
    for value in [0.1f32, -3.0e7, 1e30] {
        let case = Case::new(
            Key {
                centred: true,
                block: true,
                vectors: 1,
            },
            128,
            333,
        );
        let input = input::<f32>(&case, |_| value);
        let output = run::<f32, Identity>(&case, &input);
        for row in output.y.chunks(case.columns) {
            assert_eq!(row, input.bias);
        }
        assert_eq!(output.mean, [value; 3]);
    }
}

#[test]
fn nan_and_infinity_stay_in_their_row() {
    for bad in [f32::NAN, f32::INFINITY] {
        let case = Case::new(
            Key {
                centred: true,
                block: false,
                vectors: 1,
            },
            64,
            50,
        );
        let mut input = input::<f32>(&case, |random| random.f32());
        input.x[60] = bad;
        let output = run::<f32, Identity>(&case, &input);
        assert!(output.y[50..100].iter().all(|y| y.is_nan()));
        assert!(output.y[..50].iter().chain(&output.y[100..]).all(|y| y.is_finite()));
    }
}

#[test]
fn the_order_of_threads_changes_no_bit() {
    let mut case = Case::new(
        Key {
            centred: true,
            block: true,
            vectors: 1,
        },
        256,
        999,
    );
    let input = input::<f32>(&case, |random| random.f32());
    let first = run::<f32, Identity>(&case, &input);
    for seed in 1000..1010 {
        case.seed = seed;
        let again = run::<f32, Identity>(&case, &input);
        let bits = |output: &Output<f32>| output.y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&first), bits(&again));
    }
}

#[test]
fn results_may_replace_their_inputs() {
    for (block, columns) in [(true, 1000), (false, 101)] {
        let key = Key {
            centred: true,
            block,
            vectors: 2,
        };
        let mut case = Case::new(key, 128, columns);
        let input = input::<f32>(&case, |random| random.f32());
        let apart = run::<f32, Identity>(&case, &input);
        case.in_place = true;
        assert_eq!(run::<f32, Identity>(&case, &input).y, apart.y);
    }
}

/// Every element is read once, but for the first of a row, which each thread takes as shift.
#[test]
fn traffic_is_what_has_to_be() {
    let mut case = Case::new(
        Key {
            centred: false,
            block: true,
            vectors: 2,
        },
        128,
        1024,
    );
    case.affine = false;
    let report = run::<f32, Identity>(&case, &input(&case, |random| random.f32())).report;
    let tensor = 4 * case.elements() as u64;
    // The mean (0) and rstd are saved.
    let saved = 2 * 4 * case.rows as u64;
    assert_eq!((report.bytes_read, report.bytes_written), (tensor, tensor + saved));
}
