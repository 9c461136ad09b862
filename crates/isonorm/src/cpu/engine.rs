//! From checked arguments and a plan to kernels of one element type.

use isonorm_math::{Bf16, Element, F16};

use super::columns::{self, ColumnsBackward, ColumnsForward};
use super::crew::Crew;
use super::elementwise::{BackwardElements, ForwardElements, ResidualStream};
use super::mask::{self, Mask};
use super::memory::{Dest, Numbers, Scratch, Source};
use super::parameters::{GradientSums, Parameters};
use super::rows::{self, RowsBackward, RowsForward};
use super::statistics::{BackwardStatistics, Given, GivenMeans, Outcome};
use crate::launch::{Backward, Forward, Through, Workspace};
use crate::plan::{Plan, Schedule};
use crate::{DType, View, ViewMut};

/// A work for an element type that is known at run time.
pub(super) trait ForElement {
    /// Does it.
    fn run<T: Element>(self);
}

/// Runs `work` for the element type of this name.
pub(super) fn with_element(dtype: DType, work: impl ForElement) {
    match dtype {
        DType::F16 => work.run::<F16>(),
        DType::Bf16 => work.run::<Bf16>(),
        DType::F32 => work.run::<f32>(),
        DType::F64 => work.run::<f64>(),
    }
}

/// Whether results should go past the caches: the tensors do not fit them anyway, and the results' lines would have to be
/// read first.
fn streams(plan: &Plan) -> bool {
    !plan.desc().is_in_place() && plan.traffic().compulsory_bytes as usize >= plan.properties().llc_bytes
}

/// How many elements further on the inputs are fetched while results are written.
fn lookahead(plan: &Plan) -> usize {
    match &plan.schedule {
        Schedule::Rows(plan) => plan.lookahead,
        Schedule::Columns(_) | Schedule::Empty => 0,
    }
}

/// A forward pass whose arguments have been checked.
pub(super) struct ForwardWork<'a> {
    pub(super) plan: &'a Plan,
    pub(super) arguments: Forward<'a>,
    pub(super) workspace: &'a mut Workspace,
    pub(super) crew: Crew,
}

/// `x` and `y`; in place they are the same memory.
fn through<'a, T: Element>(data: Through<View<'a>, ViewMut<'a>>) -> (Source<'a, T>, Option<Dest<'a, T>>) {
    match data {
        Through::Separate(x, y) => (Source::new(x), Some(Dest::new(y))),
        Through::ReadOnly(x) => (Source::new(x), None),
        Through::InPlace(x) => {
            let y = Dest::new(x);
            (y.as_source(), Some(y))
        }
    }
}

impl ForElement for ForwardWork<'_> {
    fn run<T: Element>(self) {
        let ForwardWork {
            plan,
            arguments,
            workspace,
            crew,
        } = self;
        let (desc, geometry, regions) = (plan.desc(), plan.geometry(), &plan.regions);
        let scratch = Scratch::new(workspace);
        let Forward {
            data,
            weight,
            bias,
            residual,
            mask,
            stream,
            running,
            saved_mean,
            saved_rstd,
            saved_var,
        } = arguments;
        let (x, y) = through::<T>(data);
        let stream = stream.map(|stream| {
            let in_place = matches!(stream, Through::InPlace(_));
            let (residual, to) = through::<T>(stream);
            let to = to.expect("arguments were checked");
            (ResidualStream::new(x, (residual, to, in_place), crew.vectors), to)
        });
        // Behind a residual stream y may overwrite x, but that is not what it is computed from.
        let (x, stream, in_place) = match stream {
            Some((stream, sum)) => (sum.as_source(), Some(stream), false),
            None => (x, None, desc.is_in_place()),
        };
        let elements = ForwardElements::new(
            (x, y, in_place),
            residual.map(Source::new),
            desc.get_activation(),
            (streams(plan), lookahead(plan)),
            crew.vectors,
        );
        let parameters = Parameters::new(geometry, weight, bias, (scratch, regions.parameters));
        let given = running.as_ref().and_then(|r| Given::new(r, desc, geometry));
        let outcome = Outcome::new(
            desc,
            geometry,
            running,
            [saved_mean, saved_rstd, saved_var],
            (scratch, regions.statistics),
        );
        let centred = desc.get_norm().is_centred();
        let parts = regions.parts;
        match &plan.schedule {
            Schedule::Empty => {}
            Schedule::Rows(plan) => {
                rows::forward(
                    &RowsForward {
                        vectors: crew.vectors,
                        plan,
                        geometry: &plan.walk,
                        stream,
                        elements,
                        parameters,
                        centred,
                        given,
                        outcome,
                        scratch,
                        parts,
                    },
                    &crew,
                );
            }
            Schedule::Columns(plan) => {
                debug_assert!(stream.is_none(), "rows are not walked by columns");
                columns::forward(
                    &ColumnsForward {
                        vectors: crew.vectors,
                        plan,
                        geometry,
                        elements,
                        parameters,
                        centred,
                        given,
                        outcome,
                        scratch,
                        parts,
                    },
                    &crew,
                );
            }
        }
        outcome.finish();
        if let (Some(mask), Some(y)) = (mask, y) {
            mask::write(y.as_source(), geometry.elements(), mask, &crew);
        }
    }
}

/// A backward pass whose arguments have been checked.
pub(super) struct BackwardWork<'a> {
    pub(super) plan: &'a Plan,
    pub(super) arguments: Backward<'a>,
    pub(super) workspace: &'a mut Workspace,
    pub(super) crew: Crew,
}

impl ForElement for BackwardWork<'_> {
    fn run<T: Element>(self) {
        let BackwardWork {
            plan,
            arguments,
            workspace,
            crew,
        } = self;
        let (desc, geometry, regions) = (plan.desc(), plan.geometry(), &plan.regions);
        let scratch = Scratch::new(workspace);
        let Backward {
            x,
            data,
            weight,
            bias,
            residual,
            mask,
            result,
            dstream,
            running,
            means,
            mean,
            rstd,
            dweight,
            dbias,
            dresidual,
        } = arguments;
        let statistics = match (running.as_ref().and_then(|r| Given::new(r, desc, geometry)), rstd) {
            (Some(given), _) => BackwardStatistics::Given(given, means.map(|means| GivenMeans::new(means, geometry))),
            (None, Some(rstd)) => {
                let mean = mean.map(Numbers::read_only);
                BackwardStatistics::Saved {
                    mean,
                    rstd: Numbers::read_only(rstd),
                }
            }
            (None, None) => unreachable!("arguments were checked"),
        };
        let (dy, dx) = through::<T>(data);
        let elements = BackwardElements::new(
            Source::new(x),
            (dy, dx, desc.is_in_place()),
            (residual.map(Source::new), dresidual.map(Dest::new)),
            dstream.map(Source::new),
            desc.get_activation(),
            (streams(plan), lookahead(plan)),
            crew.vectors,
        )
        .masked(mask.map(Mask::new))
        .of_result(result.map(Source::new));
        let parameters = Parameters::new(geometry, weight, bias, (scratch, regions.parameters));
        let centred = desc.get_norm().is_centred();
        let (parts, staging) = (regions.parts, regions.staging);
        let wants_parameters = dweight.is_some() || dbias.is_some();
        match &plan.schedule {
            Schedule::Empty => {}
            Schedule::Rows(plan) => {
                let gradients = GradientSums::new(scratch, regions.gradients, plan.chunks, geometry.parameters, &crew);
                let pass = RowsBackward {
                    vectors: crew.vectors,
                    plan,
                    geometry,
                    elements,
                    parameters,
                    centred,
                    statistics,
                    gradients,
                    wants_parameters,
                    scratch,
                    parts,
                    staging,
                };
                rows::backward(&pass, &crew);
                gradients.finish(dweight, dbias, 1, &crew);
            }
            Schedule::Columns(plan) => {
                let len = plan.accumulators(geometry);
                let gradients = GradientSums::new(scratch, regions.gradients, plan.chunks, len, &crew);
                let pass = ColumnsBackward {
                    vectors: crew.vectors,
                    plan,
                    geometry,
                    elements,
                    parameters,
                    centred,
                    statistics,
                    gradients,
                    wants_parameters,
                    scratch,
                    parts,
                };
                columns::backward(&pass, &crew);
                gradients.finish(dweight, dbias, len / geometry.parameters, &crew);
            }
        }
    }
}
