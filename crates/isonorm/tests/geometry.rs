//! The 4-D view against the definitions of the ops, element by element.

use isonorm::{Affine, Geometry, Layout, Norm, NormDesc, Over, Pass, Shape};
use proptest::prelude::*;

/// Where an element is, as the definitions of the ops see it.
struct Logical {
    /// Its offset in memory.
    offset: usize,
    /// What its statistics are shared with.
    group: Vec<usize>,
    /// Its affine parameter.
    parameter: usize,
}

/// Every element of a tensor, straight from the definitions.
fn elements(desc: &NormDesc) -> Vec<Logical> {
    let shape = desc.get_shape();
    let dims = shape.dims();
    let strides = |order: &[usize]| {
        let mut strides = vec![0; dims.len()];
        let mut stride = 1;
        for &d in order.iter().rev() {
            strides[d] = stride;
            stride *= dims[d];
        }
        strides
    };
    let mut order: Vec<usize> = (0..dims.len()).collect();
    if desc.get_layout() == Layout::ChannelsLast {
        order.remove(1);
        order.push(1);
    }
    let memory = strides(&order);
    let total: usize = dims.iter().product();
    let row_major = strides(&(0..dims.len()).collect::<Vec<_>>());
    (0..total)
        .map(|linear| {
            let at: Vec<usize> = (0..dims.len()).map(|d| linear / row_major[d] % dims[d]).collect();
            let offset = at.iter().zip(&memory).map(|(i, s)| i * s).sum();
            let (group, parameter) = match desc.get_norm() {
                Norm::Batch => (vec![at[1]], at[1]),
                Norm::Instance if desc.uses_running_statistics() => (vec![at[1]], at[1]),
                Norm::Instance => (vec![at[0], at[1]], at[1]),
                Norm::Group { groups } => (vec![at[0], at[1] / (dims[1] / groups)], at[1]),
                Norm::Layer(Over::Channels) | Norm::Rms(Over::Channels) => (
                    at.iter()
                        .enumerate()
                        .filter(|(d, _)| *d != 1)
                        .map(|(_, i)| *i)
                        .collect(),
                    at[1],
                ),
                Norm::Layer(Over::Last(n)) | Norm::Rms(Over::Last(n)) => {
                    let kept = dims.len() - n;
                    (
                        at[..kept].to_vec(),
                        at[kept..].iter().zip(&dims[kept..]).fold(0, |p, (i, d)| p * d + i),
                    )
                }
            };
            Logical {
                offset,
                group,
                parameter,
            }
        })
        .collect()
}

fn descriptions() -> impl Strategy<Value = NormDesc> {
    let norms = prop_oneof![
        Just(Norm::Batch),
        Just(Norm::Instance),
        (1usize..4).prop_map(|groups| Norm::Group { groups }),
        (1usize..4).prop_map(|n| Norm::Layer(Over::Last(n))),
        Just(Norm::Layer(Over::Channels)),
        Just(Norm::Rms(Over::Channels)),
    ];
    let sizes = prop::collection::vec(1usize..5, 2..6);
    let passes = prop_oneof![Just(Pass::Eval), Just(Pass::Backward)];
    (norms, sizes, any::<bool>(), passes).prop_filter_map("not a description", |(norm, dims, last, pass)| {
        let mut desc = NormDesc::new(norm, Shape::new(&dims)?).affine(Affine::Full).pass(pass);
        if last && norm.has_channels() {
            desc = desc.channels_last();
        }
        desc.check().is_ok().then_some(desc)
    })
}

proptest! {
    /// The view has each element in the right group with the right parameter, and groups are numbered as documented.
    #[test]
    fn views_agree_with_the_definitions(desc in descriptions()) {
        let g = Geometry::of(&desc).unwrap();
        let logical = elements(&desc);
        prop_assert_eq!(g.elements(), logical.len());
        let mut group_of = vec![usize::MAX; logical.len()];
        let mut parameter_of = vec![usize::MAX; logical.len()];
        for batch in 0..g.batch {
            for outer in 0..g.outer {
                for kept in 0..g.kept {
                    for inner in 0..g.inner {
                        let offset = g.segment(batch, outer, kept) + inner;
                        group_of[offset] = batch * g.kept + kept;
                        parameter_of[offset] = g.affine.at(kept, outer, inner);
                    }
                }
            }
        }
        let mut names = std::collections::BTreeMap::new();
        for e in &logical {
            prop_assert_eq!(parameter_of[e.offset], e.parameter);
            let name = names.entry(e.group.clone()).or_insert(group_of[e.offset]);
            prop_assert_eq!(*name, group_of[e.offset]);
            if g.channels > 0 {
                prop_assert_eq!(group_of[e.offset] % g.channels, e.parameter);
            }
        }
        prop_assert_eq!(names.len(), g.groups());
        prop_assert_eq!(g.group_size() * g.groups(), g.elements());
    }
}

#[test]
fn zero_sized_dimensions_have_a_geometry() {
    for text in [
        "batchnorm x=0x3x4",
        "batchnorm x=2x0x4",
        "layernorm x=0x5",
        "layernorm x=5x0",
        "groupnorm x=2x0x3 groups=1",
    ] {
        let g = Geometry::of(&text.parse().unwrap()).unwrap();
        assert_eq!(g.elements(), 0, "{text}");
    }
}
