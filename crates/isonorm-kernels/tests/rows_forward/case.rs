//! What a forward kernel is run on, and the run.

use isonorm_kernels::grid::message_words;
use isonorm_kernels::interpreter::{Buffers, Launch, Report};
use isonorm_kernels::rows::Data;
use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::forward::Args;
use isonorm_kernels::rows::key::Kernel;
use isonorm_kernels::rows::lines::lines_of_run;
use isonorm_kernels::rows::long::long_down::moments_bytes;
use isonorm_kernels::rows::long::long_shared::TILES;
use isonorm_kernels::rows::parameters::{Affine, Sharing};
use isonorm_kernels::rows::ring::MOST_SLOTS;
use isonorm_kernels::rows::running::Running;
use isonorm_kernels::rows::segments::Segments;
use isonorm_kernels::rows::team::Owner;
use isonorm_kernels::simt::WARP;
use isonorm_math::Activation;

pub const EPS: f32 = 1e-5;
/// The tag of the messages that launches before have left.
const SENT: u32 = 13;

/// What the residual is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Residual {
    Absent,
    /// Added before the activation.
    Added,
    /// Added to x, and the sum written.
    Stream,
}

/// How a case lies in memory, and what it has.
#[derive(Clone, Debug)]
pub struct Case<T> {
    pub kernel: Kernel<Args<T>>,
    pub threads: u32,
    pub rows: usize,
    pub columns: usize,
    /// Elements between the end of a row and the start of the next.
    pub gap: usize,
    /// Elements between an aligned address and the first row.
    pub lead: usize,
    pub weight: bool,
    pub bias: bool,
    /// Parameters in the data's type.
    pub narrow: bool,
    pub sets: usize,
    /// Columns that share a parameter; only where the kernel has runs.
    pub run: usize,
    pub residual: Residual,
    pub activation: Activation,
    /// y, and the stream, replace what they are computed from.
    pub in_place: bool,
    /// Blocks that share a row, and tiles that each keeps of long rows, or rows that come ahead.
    pub blocks: u32,
    pub kept: u32,
    pub seed: u64,
}

/// Numbers that start at an address aligned to 16 bytes.
#[derive(Clone)]
pub struct Aligned<T> {
    data: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Copy + Default> Aligned<T> {
    pub fn new(len: usize, mut make: impl FnMut(usize) -> T) -> Self {
        let mut data = vec![T::default(); len + 16];
        let start = data.as_ptr().align_offset(16);
        for (i, place) in data[start..start + len].iter_mut().enumerate() {
            *place = make(i);
        }
        Self { data, start, len }
    }

    pub fn slice(&self) -> &[T] {
        &self.data[self.start..self.start + self.len]
    }

    fn slice_mut(&mut self) -> &mut [T] {
        &mut self.data[self.start..self.start + self.len]
    }
}

/// A copy lies elsewhere, and is aligned too.
fn copied<T: Copy + Default>(from: &Aligned<T>) -> Aligned<T> {
    Aligned::new(from.len, |i| from.slice()[i])
}

impl<T: Data> Case<T> {
    pub fn new(kernel: Kernel<Args<T>>, threads: u32, columns: usize) -> Self {
        let by_run = matches!(kernel.key.sharing, Sharing::ByRun | Sharing::AcrossRuns);
        let blocks = match kernel.key.owner {
            Owner::Blocks => 2,
            Owner::Chip => 3,
            _ => 1,
        };
        Self {
            kernel,
            threads,
            rows: 5,
            columns,
            gap: 0,
            lead: 0,
            weight: true,
            bias: true,
            narrow: false,
            sets: if by_run { 3 } else { 1 },
            run: columns,
            residual: Residual::Absent,
            activation: Activation::Identity,
            in_place: false,
            blocks,
            kept: match kernel.key.least_slots() {
                0 => 0,
                least => (least + columns as u32 % MOST_SLOTS).min(MOST_SLOTS),
            },
            seed: columns as u64,
        }
    }

    pub fn stride(&self) -> usize {
        self.columns + self.gap
    }

    fn elements(&self) -> usize {
        self.lead + self.rows * self.stride()
    }

    pub fn by_run(&self) -> bool {
        matches!(self.kernel.key.sharing, Sharing::ByRun | Sharing::AcrossRuns)
    }

    /// Parameters of a set.
    pub fn runs(&self) -> usize {
        if self.by_run() {
            self.columns.div_ceil(self.run)
        } else {
            self.columns
        }
    }

    /// Two blocks at most, so that teams have several rows.
    fn grid(&self) -> u32 {
        if self.kernel.key.is_long() {
            return 2 * self.blocks;
        }
        self.blocks * (self.rows as u32).div_ceil(self.kernel.key.teams(self.threads)).min(2)
    }

    /// Lines of each warp, where warps have such.
    fn lines(&self) -> u32 {
        let of_run = self.run as u32 / self.kernel.key.access_elements(size_of::<T>() as u32);
        let lines = self.runs() as u32 * lines_of_run(of_run);
        lines.div_ceil(self.blocks * self.threads / WARP)
    }

    /// What shared memory has room for: nothing where threads go down columns, and all tiles or lines where rows are there whole.
    fn kept(&self) -> u32 {
        let key = &self.kernel.key;
        match key.owner {
            _ if key.is_of_lines() => self.lines() * key.places(size_of::<T>() as u32),
            _ if key.is_down_columns() => 0,
            _ if key.is_whole() => TILES,
            _ => self.kept,
        }
    }

    /// Whether its rows may be accessed as the kernel does.
    pub fn is_legal(&self) -> bool {
        let bytes = size_of::<T>();
        let lanes = 16 / bytes;
        let aligned = self.lead.is_multiple_of(lanes) && self.stride().is_multiple_of(lanes);
        if self.kernel.key.owner == Owner::Each {
            let anywhere = self.kernel.key.width == Width::Element || self.lead.is_multiple_of(lanes);
            return anywhere && self.gap == 0 && self.run == self.columns;
        }
        let whole_runs = self.kernel.key.sharing != Sharing::ByRun || self.run.is_multiple_of(lanes);
        let whole_runs = whole_runs && (!self.kernel.key.is_of_lines() || self.columns.is_multiple_of(self.run));
        self.kernel
            .key
            .fits(self.columns as u64, (self.threads, self.blocks), bytes as u32)
            && (self.kernel.key.width == Width::Element || (aligned && whole_runs))
    }
}

/// Parameters in both types; one of them is passed.
pub struct Parameters<T> {
    wide: Aligned<f32>,
    narrow: Aligned<T>,
}

impl<T: Data> Parameters<T> {
    fn new(case: &Case<T>, len: usize, mut make: impl FnMut() -> f32) -> Self {
        let narrow = Aligned::new(len, |_| T::from_acc(make()));
        let wide = |i: usize| {
            let rounded = narrow.slice()[i].to_acc();
            // What no 16-bit type has.
            if case.narrow { rounded } else { rounded * 1.000_1 }
        };
        Self {
            wide: Aligned::new(len, wide),
            narrow,
        }
    }

    pub fn get(&self, i: usize) -> f64 {
        self.wide.slice()[i].into()
    }

    fn pass<'a>(&'a self, case: &Case<T>, name: &str, there: bool, buffers: &mut Buffers<'a>) -> *const u8 {
        match (there, case.narrow) {
            (false, _) => std::ptr::null(),
            (true, true) => buffers.read_only(name, self.narrow.slice()).cast(),
            (true, false) => buffers.read_only(name, self.wide.slice()).cast(),
        }
    }
}

pub struct Input<T> {
    pub x: Aligned<T>,
    pub residual: Aligned<T>,
    pub weight: Parameters<T>,
    pub bias: Parameters<T>,
    pub given_mean: Parameters<T>,
    pub given_variance: Parameters<T>,
}

pub struct Output<T> {
    pub y: Aligned<T>,
    pub stream: Aligned<T>,
    pub mean: Vec<f32>,
    pub rstd: Vec<f32>,
    pub variance: Vec<f32>,
    pub report: Report,
}

pub fn input<T: Data>(case: &Case<T>, mut value: impl FnMut(&mut fastrand::Rng) -> f32) -> Input<T> {
    let mut random = fastrand::Rng::with_seed(case.seed);
    let parameters = case.sets * case.runs();
    Input {
        x: Aligned::new(case.elements(), |_| T::from_acc(value(&mut random))),
        residual: Aligned::new(case.elements(), |_| T::from_acc(random.f32() - 0.5)),
        weight: Parameters::new(case, parameters, || random.f32() + 0.5),
        bias: Parameters::new(case, parameters, || random.f32() - 0.5),
        given_mean: Parameters::new(case, case.sets, || random.f32() - 0.5),
        given_variance: Parameters::new(case, case.sets, || random.f32() + 0.5),
    }
}

/// Runs the kernel on buffers that hold what was asked for, and on no others.
pub fn run<T: Data>(case: &Case<T>, input: &Input<T>) -> Output<T> {
    assert!(case.is_legal(), "{case:?}");
    let poison = |_| T::from_acc(f32::NAN);
    let mut output = Output {
        y: Aligned::new(case.elements(), poison),
        stream: Aligned::new(case.elements(), poison),
        mean: vec![f32::NAN; case.rows],
        rstd: vec![f32::NAN; case.rows],
        variance: vec![f32::NAN; case.rows],
        report: Report::default(),
    };
    let has_stream = case.residual == Residual::Stream;
    if case.in_place {
        output.y = copied(&input.x);
        output.stream = copied(&input.residual);
    }
    let moments = match case.kernel.key.is_down_columns() {
        // All blocks share each of some rows.
        true => moments_bytes(case.grid().into()) as usize / size_of::<f32>(),
        false => 2 * 2 * case.blocks as usize * 3,
    };
    let mut moments = vec![f32::NAN; moments];
    let mut arrived = [0u32; 2];
    let mut messages = Aligned::new(
        (case.grid() / case.blocks * message_words(case.blocks)) as usize,
        |_| SENT,
    );
    let mut buffers = Buffers::new();
    let y = buffers.writable("y", output.y.slice_mut()).wrapping_add(case.lead);
    let stream = buffers
        .writable("stream", output.stream.slice_mut())
        .wrapping_add(case.lead);
    let (mut x, mut residual) = (y.cast_const(), stream.cast_const());
    if !case.in_place {
        x = buffers.read_only("x", input.x.slice()).wrapping_add(case.lead);
    }
    if !(case.in_place && has_stream) {
        residual = buffers
            .read_only("residual", input.residual.slice())
            .wrapping_add(case.lead);
    }
    let args = Args {
        x,
        residual: if case.residual == Residual::Absent {
            std::ptr::null()
        } else {
            residual
        },
        stream: if has_stream { stream } else { std::ptr::null_mut() },
        y,
        affine: Affine {
            weight: input.weight.pass(case, "weight", case.weight, &mut buffers),
            bias: input.bias.pass(case, "bias", case.bias, &mut buffers),
            run: case.run as u64,
            sets: case.sets as u32,
            runs: case.runs() as u32,
            as_data: case.narrow.into(),
        },
        given_mean: input.given_mean.pass(case, "given mean", true, &mut buffers),
        given_variance: input.given_variance.pass(case, "given variance", true, &mut buffers),
        mean: buffers.writable("mean", &mut output.mean),
        rstd: buffers.writable("rstd", &mut output.rstd),
        variance: buffers.writable("variance", &mut output.variance),
        rows: case.rows as u64,
        x_stride: case.stride() as u64,
        residual_stride: case.stride() as u64,
        stream_stride: case.stride() as u64,
        y_stride: case.stride() as u64,
        columns: case.columns as u64,
        eps: EPS,
        activation: case.activation.into(),
        kept: case.kept(),
        moments: buffers.writable("moments", &mut moments),
        arrived: buffers.writable("arrived", &mut arrived),
        blocks: case.blocks,
        messages: buffers.writable("messages", messages.slice_mut()),
        sent: SENT,
        segments: Segments::NONE,
        running: Running::NONE,
        mask: std::ptr::null_mut(),
    };
    let key = &case.kernel.key;
    let mut launch = Launch::new(case.grid(), case.threads)
        .shared_bytes(key.shared_bytes(case.threads, case.kept()))
        .seed(case.seed);
    launch = match key.owner {
        Owner::Blocks => launch.cluster(case.blocks),
        Owner::Grid | Owner::Chip => launch.resident(),
        _ => launch,
    };
    // SAFETY: the interpreter checks every access.
    let report = launch.run(&buffers, || unsafe { (case.kernel.run)(&args) });
    output.report = report.unwrap_or_else(|fault| panic!("{case:?}: {fault}"));
    output
}
