//! The two sweeps over some rows of a tile, line by line.

use std::ops::Range;

use isonorm_math::{BackwardCoefficients, Element, Normalizer, Real};

use super::{ColumnsBackward, TileCoefficients};
use crate::cpu::columns::{LaneSums, gather};
use crate::cpu::elementwise::{
    AffineMap, All, BackwardSpace, Coefficient, Gradient, GradientVisitor, Gradients, InputGradient, REGISTER_LANES,
    Results, rounds,
};
use crate::cpu::isa::Kernel;
use crate::cpu::lanes::GradientLanes;

/// The first sweep over some rows of a tile: the sums; and the results, when they do not depend on the sums. Made where no
/// other task touches these rows, nor (by row) the accumulators of this chunk.
pub(super) struct SumRows<'p, 'a, 's, T: Element> {
    pub(super) pass: &'p ColumnsBackward<'a, T>,
    pub(super) tile: &'s TileCoefficients<'p, T::Acc>,
    pub(super) rows: Range<usize>,
    pub(super) chunk: usize,
    pub(super) space: &'s mut BackwardSpace<T>,
}

impl<T: Element> Kernel for SumRows<'_, '_, '_, T> {
    type Output = LaneSums<f64>;

    const STORES_16_BITS: bool = rounds::<T>();

    #[inline(always)]
    fn run(self) -> LaneSums<f64> {
        let SumRows {
            pass,
            tile,
            rows,
            chunk,
            space,
        } = self;
        let TileCoefficients {
            layout,
            normalizer,
            parameters,
        } = tile;
        let writes = !pass.statistics.depend_on_x() && pass.elements.writes();
        let none = All(BackwardCoefficients::default());
        let mut total = LaneSums::<f64>::zero();
        let block_rows = pass.plan.block_rows;
        for block in rows.clone().step_by(block_rows) {
            let rows = block..(block + block_rows).min(rows.end);
            let mut sums = LaneSums::<T::Acc>::zero();
            if pass.plan.by_row {
                for row in rows {
                    let at = (layout.offset(row), layout.width());
                    let (n, parameters) = (normalizer.first(at.1), pass.of_row(layout, row));
                    let a = All(parameters);
                    let mut of_row = GradientLanes::new();
                    let mut visitor = SumLine {
                        len: at.1,
                        width: layout.width(),
                        sums: &mut sums,
                        of_row: Some((parameters.weight, &mut of_row)),
                        write: InputGradient { n, a, means: none },
                    };
                    // SAFETY: these rows are this task's alone.
                    unsafe { pass.elements.chunk(at, writes, (&[n], a), space, &mut visitor) };
                    let (gx, g) = of_row.take();
                    // SAFETY: these accumulators are this task's alone.
                    let [dweight, dbias] = unsafe { pass.gradients.of_chunk(chunk, layout.row_parameter(row), 1) };
                    dweight[0] += gx.to_f64();
                    dbias[0] += g.to_f64();
                }
            } else {
                for at in layout.lines(rows) {
                    let (n, a) = (normalizer.first(at.1), parameters.first(at.1));
                    let mut visitor = SumLine {
                        len: at.1,
                        width: layout.width(),
                        sums: &mut sums,
                        of_row: None,
                        write: InputGradient { n, a, means: none },
                    };
                    // SAFETY: as above.
                    unsafe { pass.elements.chunk(at, writes, (&[n], a), space, &mut visitor) };
                }
            }
            gather(&mut sums.gx, layout);
            gather(&mut sums.g, layout);
            total.add(&sums.gx[..layout.width()], &sums.g[..layout.width()]);
        }
        total
    }
}

/// The second sweep over some rows of a tile, in the order of memory, as prefetching likes it. Made where no other task
/// touches them.
pub(super) struct WriteRows<'p, 'a, 's, T: Element> {
    pub(super) pass: &'p ColumnsBackward<'a, T>,
    pub(super) tile: &'s TileCoefficients<'p, T::Acc>,
    pub(super) rows: Range<usize>,
    pub(super) means: &'s LaneSums<T::Acc>,
    pub(super) space: &'s mut BackwardSpace<T>,
}

impl<T: Element> Kernel for WriteRows<'_, '_, '_, T> {
    type Output = ();

    const STORES_16_BITS: bool = rounds::<T>();

    #[inline(always)]
    fn run(self) {
        let WriteRows {
            pass,
            tile,
            rows,
            means,
            space,
        } = self;
        let TileCoefficients {
            layout,
            normalizer,
            parameters,
        } = tile;
        if pass.plan.by_row {
            for row in rows {
                let at = (layout.offset(row), layout.width());
                let (n, a) = (normalizer.first(at.1), All(pass.of_row(layout, row)));
                let mut visitor = InputGradient {
                    n,
                    a,
                    means: means.means(at.1),
                };
                // SAFETY: these rows are this task's alone.
                unsafe { pass.elements.chunk(at, true, (&[n], a), space, &mut visitor) };
            }
        } else {
            for at in layout.lines(rows) {
                let (n, a) = (normalizer.first(at.1), parameters.first(at.1));
                let mut visitor = InputGradient {
                    n,
                    a,
                    means: means.means(at.1),
                };
                // SAFETY: as above.
                unsafe { pass.elements.chunk(at, true, (&[n], a), space, &mut visitor) };
            }
        }
    }
}

/// The first sweep over a line.
struct SumLine<'s, A, N, W, M> {
    len: usize,
    /// Columns of the tile, whose rows the line is made of.
    width: usize,
    sums: &'s mut LaneSums<A>,
    /// What the sums of the columns are weighted by, and the sums of the row, when parameters differ by row.
    of_row: Option<(A, &'s mut GradientLanes<A>)>,
    write: InputGradient<N, W, M>,
}

impl<A, N, W, M> GradientVisitor<A> for SumLine<'_, A, N, W, M>
where
    A: Real,
    N: Coefficient<Normalizer<A>>,
    W: Coefficient<AffineMap<A>>,
    M: Coefficient<BackwardCoefficients<A>>,
{
    #[inline(always)]
    fn visit<T: Element<Acc = A>, G: Gradients<A>>(&mut self, gradients: G, results: Results<'_, T>) {
        let SumLine {
            len,
            width,
            sums,
            of_row,
            write,
        } = self;
        let (gradient, len) = (gradients.row(0), *len);
        let (gx_sums, g_sums) = (&mut sums.gx[..len], &mut sums.g[..len]);
        if let Some((weight, of_row)) = of_row {
            let of_line = gradient.part(0, len);
            for i in 0..len {
                let (xhat, g) = of_line.at(i);
                let wg = g * *weight;
                gx_sums[i] = wg.mul_add(xhat, gx_sums[i]);
                g_sums[i] += wg;
            }
            of_row.add(gradient, len);
        } else if REGISTER_LANES.is_multiple_of(*width) && len.is_multiple_of(REGISTER_LANES) {
            add_stretches(gradient, gx_sums, g_sums);
        } else {
            let of_line = gradient.part(0, len);
            for i in 0..len {
                let (xhat, g) = of_line.at(i);
                gx_sums[i] = g.mul_add(xhat, gx_sums[i]);
                g_sums[i] += g;
            }
        }
        write.write(gradient, results);
    }
}

/// Adds up the stretches of a line, each [`REGISTER_LANES`] long: whole rows, so that lanes of the same number are of one column.
/// The sums stay in registers from stretch to stretch.
#[inline(always)]
fn add_stretches<A: Real, G: Gradient<A>>(gradient: G, gx_sums: &mut [A], g_sums: &mut [A]) {
    let stretches = gx_sums.len() / REGISTER_LANES;
    let (gx_sums, g_sums) = (&mut gx_sums[..REGISTER_LANES], &mut g_sums[..REGISTER_LANES]);
    let (mut gx, mut g) = ([A::ZERO; REGISTER_LANES], [A::ZERO; REGISTER_LANES]);
    gx.copy_from_slice(gx_sums);
    g.copy_from_slice(g_sums);
    for stretch in 0..stretches {
        let gradient = gradient.part(stretch * REGISTER_LANES, REGISTER_LANES);
        for i in 0..REGISTER_LANES {
            let (xhat, gradient) = gradient.at(i);
            gx[i] = gradient.mul_add(xhat, gx[i]);
            g[i] += gradient;
        }
    }
    gx_sums.copy_from_slice(&gx);
    g_sums.copy_from_slice(&g);
}
