//! What kernels and their families are called.

use super::{Class, Key, Op, Owner, Pass, Sharing, WARP, Width};

impl Key {
    /// The name of the entry point in its module.
    pub fn name(&self) -> String {
        let op = match self.op {
            Op::Layer => "layer",
            Op::Rms => "rms",
            Op::Given => "given",
        };
        let owner = match self.owner {
            Owner::Lanes(WARP) => "warp".into(),
            Owner::Lanes(lanes) => format!("lanes{lanes}"),
            Owner::Block => "block".into(),
            Owner::Blocks => "blocks".into(),
            Owner::Chip => "chip".into(),
            Owner::Alone => "alone".into(),
            Owner::Grid => "grid".into(),
            Owner::Pieces => "pieces".into(),
            Owner::Each => "each".into(),
        };
        let ahead = if self.ahead && !self.is_long() { "_ahead" } else { "" };
        format!("{op}_{owner}_v{}{ahead}", self.accesses)
    }

    /// The family of kernels that it belongs to: there is a module of it for each element type.
    pub fn family(&self) -> String {
        let mut name = String::from(match self.owner {
            Owner::Grid if self.pass == Pass::Backward => "rows_sweeps",
            Owner::Blocks if self.is_apart() => "rows_backward_apart_cluster",
            Owner::Blocks if self.pass == Pass::Backward => "rows_backward_cluster",
            Owner::Chip if self.pass == Pass::Backward => "rows_backward_chip",
            Owner::Pieces if self.pass == Pass::Backward => "rows_backward_pieces",
            _ if self.is_apart() => "rows_backward_apart",
            _ if self.pass == Pass::Backward => "rows_backward",
            Owner::Blocks => "rows_forward_cluster",
            Owner::Chip => "rows_forward_chip",
            Owner::Pieces => "rows_forward_pieces",
            Owner::Lanes(_) | Owner::Block => "rows_forward",
            Owner::Alone | Owner::Grid => "rows_long",
            Owner::Each => "rows_each",
        });
        if self.width == Width::Element {
            name += "_elements";
        }
        name += match self.sharing {
            _ if self.owner == Owner::Each => "",
            Sharing::ByColumn if self.width == Width::Ragged => "_ragged_by_column",
            Sharing::ByColumn => "",
            Sharing::ByRun if self.pass == Pass::Forward && self.is_of_lines() => "_lines",
            Sharing::Segmented if self.is_of_lines() => "_lines_of_segments",
            Sharing::ByRun => "_runs",
            Sharing::BySegment => "_by_segment",
            Sharing::AcrossRuns => "_across_runs",
            Sharing::Segmented if self.width == Width::Ragged => "_ragged",
            Sharing::Segmented if self.width == Width::Half => "_halves",
            Sharing::Segmented => "_segments",
        };
        name += match (self.class, self.owner) {
            _ if self.is_apart() => {
                if self.accesses > 4 {
                    "_wide"
                } else {
                    ""
                }
            }
            (Class::Plain, Owner::Lanes(_)) if self.pass == Pass::Backward && self.accesses > 4 => "_wide",
            (Class::Plain, Owner::Chip) if self.is_by_part() => "_wide",
            _ if self.is_down_columns() => "_down",
            (Class::Plain, Owner::Blocks | Owner::Chip) => "_plain",
            (Class::Plain, _) if self.is_long() || self.pass == Pass::Backward => "_plain",
            (Class::Plain, Owner::Lanes(_)) if self.accesses > 4 => "_lanes_wide",
            (Class::Plain, Owner::Lanes(_)) => "_lanes",
            (Class::Plain, _) => "_block",
            (Class::Piecewise, Owner::Lanes(_)) if self.accesses > 4 => "_piecewise_wide",
            (Class::Piecewise, _) if self.accesses - u32::from(self.has_ends()) > 8 => "_wide",
            (Class::Piecewise, _) if self.residual && self.has_residual_apart() => "_residual",
            (Class::Piecewise, _) => "_piecewise",
            (Class::Any, _) if self.is_whole() => "_any",
            (Class::Any, _) if self.width == Width::Element || self.is_long() || self.pass == Pass::Backward => "",
            (Class::Any, _) if self.residual && self.has_residual_apart() => "_any_residual",
            (Class::Any, Owner::Lanes(_) | Owner::Block) if self.accesses > 4 && self.width == Width::Vector => {
                "_any_wide"
            }
            (Class::Any, _) => "_any",
            (Class::Masked, _) => "_masked",
            (Class::Added, _) => "_added",
            (Class::Result, _) => "_result",
        };
        name
    }

    /// Whether kernels with a residual are a family of their own; others have it with the rest.
    fn has_residual_apart(&self) -> bool {
        let is_short = matches!(self.owner, Owner::Lanes(_) | Owner::Block) && self.width == Width::Vector;
        let is_short =
            is_short && matches!(self.sharing, Sharing::ByColumn | Sharing::ByRun) && self.pass == Pass::Forward;
        is_short || self.owner == Owner::Chip && self.class == Class::Piecewise
    }
}
