//! What a backward kernel is run on, and the run.

use isonorm_kernels::grid::message_words;
use isonorm_kernels::interpreter::{Buffers, Launch};
use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::backward::Args;
use isonorm_kernels::rows::key::{Kernel, Key};
use isonorm_kernels::rows::parameters::{Affine, Sharing};
use isonorm_kernels::rows::ring::MOST_SLOTS;
use isonorm_kernels::rows::segments::Segments;
use isonorm_kernels::rows::statistics::Op;
use isonorm_kernels::rows::team::Owner;
use isonorm_kernels::rows::{Data, gather};
use isonorm_kernels::simt::WARP;
use isonorm_math::Activation;

const EPS: f64 = 1e-5;
/// The tag of the messages that launches before have left.
const SENT: u32 = 13;
/// Blocks that have columns, where these go apart.
const COLUMN_BLOCKS: u32 = 2;

pub struct Case<T> {
    pub kernel: Kernel<Args<T>>,
    pub threads: u32,
    pub blocks: u32,
    /// Rows that come ahead; of lines, places for an access of each thread; where columns go apart, threads side by side in a strip of them.
    pub slots: u32,
    pub rows: usize,
    pub columns: usize,
    /// Parameters of a row, each for as many columns; rows with the same parameters are so many apart.
    pub runs: usize,
    pub sets: usize,
    pub residual: bool,
    pub stream: bool,
    pub narrow: bool,
    pub activation: Activation,
    pub in_place: bool,
    pub most_teams: u32,
    pub seed: u64,
}

/// Lines of a warp, where it has such.
pub const LINES: u32 = 4;
/// Accesses of a row for each of these warps: three lines, of which one is not all there, and room for one more where runs are shorter.
const OF_WARP: u32 = 72;

/// The elements of a row of which warps have lines.
pub fn columns_of_lines<T: Data>(kernel: &Kernel<Args<T>>, threads: u32) -> usize {
    let warps = blocks(&kernel.key) * threads / WARP;
    (warps * OF_WARP * kernel.key.access_elements(size_of::<T>() as u32)) as usize
}

/// Blocks that own a row.
pub fn blocks(key: &Key) -> u32 {
    match key.owner {
        Owner::Blocks => 2,
        Owner::Chip => 3,
        _ => 1,
    }
}

/// The most runs that are longer than an access, and no whole number of them, if there are such.
fn across(columns: usize, access: usize) -> usize {
    let divides = |runs: &usize| columns.is_multiple_of(*runs) && !(columns / runs).is_multiple_of(access);
    (2..columns / access).rev().find(divides).unwrap_or(2)
}

/// Numbers that start at an address aligned to 16 bytes, after `lead` of them.
pub struct Tensor<T> {
    pub data: Vec<T>,
    pub start: usize,
}

impl<T: Copy + Default> Tensor<T> {
    fn new(len: usize, lead: usize, mut make: impl FnMut() -> T) -> Self {
        let mut data = vec![T::default(); len + 32];
        let start = data.as_ptr().align_offset(16) + lead;
        data[start..start + len].fill_with(&mut make);
        data.truncate(start + len);
        Self { data, start }
    }

    pub fn get(&self) -> &[T] {
        &self.data[self.start..]
    }

    fn get_mut(&mut self) -> &mut [T] {
        &mut self.data[self.start..]
    }
}

impl<T: Data> Case<T> {
    pub fn new(kernel: Kernel<Args<T>>, threads: u32, columns: usize) -> Self {
        let sharing = kernel.key.sharing;
        let has_sets = matches!(sharing, Sharing::ByRun | Sharing::AcrossRuns);
        let blocks = blocks(&kernel.key);
        Self {
            kernel,
            threads,
            blocks,
            slots: match kernel.key.least_slots() {
                _ if kernel.key.is_apart() => 1 << (columns % 5),
                _ if kernel.key.is_of_lines() => LINES * kernel.key.places(size_of::<T>() as u32),
                0 => 0,
                least => (least + columns as u32 % MOST_SLOTS).min(MOST_SLOTS),
            },
            rows: if has_sets { 6 } else { 7 },
            columns,
            runs: match sharing {
                Sharing::ByRun => (blocks * threads / WARP) as usize,
                Sharing::AcrossRuns => across(columns, kernel.key.access_elements(size_of::<T>() as u32) as usize),
                _ => columns,
            },
            sets: if has_sets { 3 } else { 1 },
            residual: false,
            stream: false,
            narrow: false,
            activation: match kernel.key.class.has(Activation::Identity) {
                true => Activation::Identity,
                false => Activation::Relu,
            },
            in_place: false,
            most_teams: 2,
            seed: columns as u64,
        }
    }

    /// Whether the kernel writes gradients as they are wanted.
    pub fn writes_gradients(&self) -> bool {
        let key = &self.kernel.key;
        key.is_apart() || key.leaves_gradients(self.most_teams as u64)
    }

    /// How many parameters there are.
    pub fn parameters(&self) -> usize {
        self.sets * self.runs
    }

    /// Which one an element has.
    pub fn parameter(&self, row: usize, column: usize) -> usize {
        row % self.sets * self.runs + column / (self.columns / self.runs)
    }

    /// Misaligned, where the kernel allows that.
    fn lead(&self) -> usize {
        if self.kernel.key.width == Width::Element { 3 } else { 0 }
    }
}

pub struct Input<T> {
    pub x: Tensor<T>,
    pub dy: Tensor<T>,
    pub residual: Tensor<T>,
    pub dstream: Tensor<T>,
    pub weight: [Tensor<f32>; 2],
    pub narrow: [Tensor<T>; 2],
    pub mean: Vec<f32>,
    pub rstd: Vec<f32>,
}

pub fn input<T: Data>(case: &Case<T>) -> Input<T> {
    let mut random = fastrand::Rng::with_seed(case.seed);
    let mut tensor = |scale: f32, offset: f32| {
        Tensor::new(case.rows * case.columns, case.lead(), || {
            T::from_acc((random.f32() - offset) * scale)
        })
    };
    let (x, dy, residual, dstream) = (tensor(4.0, 0.3), tensor(2.0, 0.5), tensor(1.0, 0.5), tensor(1.0, 0.5));
    let parameters = case.parameters();
    let narrow = [1.0, 0.0].map(|offset| Tensor::new(parameters, 0, || T::from_acc(random.f32() - 0.5 + offset)));
    let weight = [0, 1].map(|i: usize| {
        let mut rounded = narrow[i].get().iter();
        Tensor::new(parameters, 0, || rounded.next().unwrap().to_acc())
    });
    let centred = case.kernel.key.op == Op::Layer;
    let (mut means, mut rstds) = (vec![], vec![]);
    for row in x.get().chunks(case.columns) {
        let row: Vec<f64> = row.iter().map(|x| x.to_acc().into()).collect();
        let count = row.len() as f64;
        let mean = if centred { row.iter().sum::<f64>() / count } else { 0.0 };
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        means.push(mean as f32);
        rstds.push((1.0 / (variance + EPS).sqrt()) as f32);
    }
    Input {
        x,
        dy,
        residual,
        dstream,
        weight,
        narrow,
        mean: means,
        rstd: rstds,
    }
}

pub struct Output<T> {
    pub dx: Tensor<T>,
    pub dresidual: Tensor<T>,
    /// Of weight and bias.
    pub gradients: [Vec<f32>; 2],
}

pub fn run<T: Data>(case: &Case<T>, input: &Input<T>) -> Output<T> {
    let poison = T::from_acc(f32::NAN);
    let key = &case.kernel.key;
    assert!(key.fits(case.columns as u64, (case.threads, case.blocks), size_of::<T>() as u32));
    let elements = case.rows * case.columns;
    let mut output = Output {
        dx: Tensor::new(elements, case.lead(), || poison),
        dresidual: Tensor::new(elements, case.lead(), || poison),
        gradients: [vec![f32::NAN; case.parameters()], vec![f32::NAN; case.parameters()]],
    };
    if case.in_place {
        output.dx.get_mut().copy_from_slice(input.dy.get());
        output.dresidual.get_mut().copy_from_slice(input.x.get());
    }
    let teams = (case.rows as u32)
        .div_ceil(key.teams(case.threads))
        .min(case.most_teams);
    let column_blocks = if key.is_apart() { COLUMN_BLOCKS } else { 0 };
    let count = match key.sharing {
        _ if case.writes_gradients() => 1,
        Sharing::ByColumn => teams,
        // Each block leaves its own.
        _ if key.is_of_lines() && case.runs > 1 => (case.rows / case.sets) as u32 * case.blocks,
        _ => (case.rows / case.sets) as u32,
    };
    let mut parts = [0, 1].map(|_| Tensor::new(count as usize * case.parameters(), 0, || f32::NAN));
    // Gradients, where they are written as they are wanted.
    let mut narrow = [0, 1].map(|_| Tensor::new(case.parameters(), 0, || poison));
    let [narrow_weight, narrow_bias] = &mut narrow;
    let is_narrow = case.writes_gradients() && case.narrow;
    let mut messages = Tensor::new((teams * message_words(case.blocks)) as usize, 0, || SENT);
    let [weight_parts, bias_parts] = &mut parts;
    let mut buffers = Buffers::new();
    let dx = buffers.writable("dx", output.dx.get_mut());
    let dresidual = buffers.writable("dresidual", output.dresidual.get_mut());
    let [weight, bias] = [0, 1].map(|i: usize| match case.narrow {
        true => buffers.read_only("narrow", input.narrow[i].get()).cast::<u8>(),
        false => buffers.read_only("wide", input.weight[i].get()).cast(),
    });
    let stride = case.columns as u64;
    let args = Args {
        x: if case.in_place {
            dresidual.cast_const()
        } else {
            buffers.read_only("x", input.x.get())
        },
        dy: if case.in_place {
            dx.cast_const()
        } else {
            buffers.read_only("dy", input.dy.get())
        },
        residual: if case.residual {
            buffers.read_only("residual", input.residual.get())
        } else {
            std::ptr::null()
        },
        dstream: if case.stream {
            buffers.read_only("dstream", input.dstream.get())
        } else {
            std::ptr::null()
        },
        dx,
        dresidual: if case.residual { dresidual } else { std::ptr::null_mut() },
        affine: Affine {
            weight,
            bias,
            as_data: case.narrow.into(),
            run: (case.columns / case.runs) as u64,
            sets: case.sets as u32,
            runs: case.runs as u32,
        },
        mean: if key.op == Op::Layer {
            buffers.read_only("mean", &input.mean)
        } else {
            std::ptr::null()
        },
        rstd: buffers.read_only("rstd", &input.rstd),
        dweight: match is_narrow {
            true => buffers.writable("dweight", narrow_weight.get_mut()).cast(),
            false => buffers.writable("parts of weight", weight_parts.get_mut()),
        },
        dbias: match is_narrow {
            true => buffers.writable("dbias", narrow_bias.get_mut()).cast(),
            false => buffers.writable("parts of bias", bias_parts.get_mut()),
        },
        rows: case.rows as u64,
        columns: stride,
        x_stride: stride,
        dy_stride: stride,
        residual_stride: stride,
        dstream_stride: stride,
        dx_stride: stride,
        dresidual_stride: stride,
        activation: case.activation.into(),
        slots: case.slots,
        blocks: case.blocks,
        messages: buffers.writable("messages", messages.get_mut()),
        sent: SENT,
        segments: Segments::NONE,
        column_blocks,
        column_lanes: case.slots,
    };
    let launch = Launch::new(column_blocks + teams * case.blocks, case.threads)
        .shared_bytes(key.shared_bytes(case.threads, case.slots))
        .seed(case.seed);
    let launch = match key.owner {
        Owner::Blocks => launch.cluster(case.blocks),
        Owner::Chip => launch.resident(),
        _ => launch,
    };
    // SAFETY: the interpreter checks every access.
    let report = launch.run(&buffers, || unsafe { (case.kernel.run)(&args) });
    report.unwrap_or_else(|fault| panic!("{}: {fault}", case.kernel.name));
    drop(buffers);
    if is_narrow {
        output.gradients = narrow.map(|numbers| numbers.get().iter().map(|number| number.to_acc()).collect());
    } else {
        add_up(case, count, &parts, &mut output.gradients);
    }
    output
}

/// The second kernel.
fn add_up<T: Data>(case: &Case<T>, count: u32, parts: &[Tensor<f32>; 2], gradients: &mut [Vec<f32>; 2]) {
    let [dweight, dbias] = gradients;
    let mut buffers = Buffers::new();
    let width = match (case.parameters() as u32).is_multiple_of(gather::WIDE) && case.seed.is_multiple_of(3) {
        true => gather::WIDE,
        false => 1,
    };
    let args = gather::Args::<T> {
        parts_of_weight: buffers.read_only("parts of weight", parts[0].get()),
        parts_of_bias: buffers.read_only("parts of bias", parts[1].get()),
        dweight: buffers.writable("dweight", dweight).cast(),
        dbias: buffers.writable("dbias", dbias).cast(),
        parts: count.into(),
        warps: if case.seed.is_multiple_of(2) { 4 } else { 2 },
        columns: case.parameters() as u64,
        as_data: 0,
        width,
        of: std::marker::PhantomData,
    };
    let launch = Launch::new(3, 128)
        .shared_bytes(gather::shared_bytes(128, width))
        .seed(case.seed);
    // SAFETY: the interpreter checks every access.
    let report = launch.run(&buffers, || unsafe { gather::gather(&args) });
    report.unwrap_or_else(|fault| panic!("gather: {fault}"));
}
