//! Whether a layer's weight has the shape that its norm asks for, and how it is stored.

use isonorm::fold::WeightLayout;

use super::Options;
use super::state::StateDict;

/// Why a layer cannot belong to a norm.
#[derive(Debug)]
pub(super) struct Misfit {
    /// In words, with the shapes.
    pub reason: String,
    /// Whether the layer's input fits where its output does not: then the norm comes before the layer.
    pub norm_is_first: bool,
}

impl From<String> for Misfit {
    fn from(reason: String) -> Misfit {
        Misfit {
            reason,
            norm_is_first: false,
        }
    }
}

/// Whether this module has a weight that something can be folded into.
pub(super) fn is_layer(state: &StateDict<'_>, name: &str) -> bool {
    state
        .shape(&format!("{name}.weight"))
        .is_some_and(|shape| (2..=5).contains(&shape.len()))
}

/// The layout of the layer before a norm of so many features.
pub(super) fn before(
    state: &StateDict<'_>,
    options: &Options,
    layer: &str,
    features: usize,
) -> Result<WeightLayout, Misfit> {
    let (shape, text) = weight_shape(state, layer)?;
    let kernel = &shape[2..];
    if let Some(groups) = options.groups_of_transposed(layer) {
        let (layout, outputs) = match kernel.is_empty() {
            true => (WeightLayout::LinearTransposed, shape[1]),
            false => (WeightLayout::ConvTranspose { groups }, shape[1].saturating_mul(groups)),
        };
        let fits = outputs == features;
        let reason = || format!("{layer}, {layout} {text}, has {outputs} outputs, not {features}").into();
        return if fits { Ok(layout) } else { Err(reason()) };
    }
    let layout = if kernel.is_empty() {
        WeightLayout::Linear
    } else {
        WeightLayout::Conv
    };
    let suspicion = suspicion(layer, shape);
    if shape[0] == features {
        return match suspicion.filter(|_| shape[1] == features && !options.is_mapped(layer)) {
            None => Ok(layout),
            Some(why) => Err(format!(
                "{layer} {text} {why}, and its shape fits both ways: --transposed {layer}, or --map for an ordinary one"
            )
            .into()),
        };
    }
    let input_fits = shape[1] == features;
    let hint = match (input_fits, kernel.is_empty()) {
        (false, _) => "",
        (true, true) => "; its input fits, so the norm comes first",
        (true, false) => "; its input fits, so the norm comes first (or say --transposed)",
    };
    Err(Misfit {
        reason: format!(
            "{layer}, {layout} {text}, has {} outputs, not {features}{hint}",
            shape[0]
        ),
        norm_is_first: input_fits && suspicion.is_none(),
    })
}

/// The layout of a linear layer that reads a norm of so many features.
pub(super) fn after(
    state: &StateDict<'_>,
    options: &Options,
    layer: &str,
    features: usize,
) -> Result<WeightLayout, Misfit> {
    let (shape, text) = weight_shape(state, layer)?;
    if shape.len() != 2 {
        return Err(format!("{layer} {text} is a convolution, whose padding is zeros that are not normalized").into());
    }
    let (linear, transposed) = (shape[1] == features, shape[0] == features);
    let leaf = layer.rsplit('.').next().unwrap_or(layer);
    // GPT-2's layers store their weights as [in, out]; others took over its names with ordinary linear layers.
    let either = leaf.starts_with("c_") && !options.is_mapped(layer);
    match (options.groups_of_transposed(layer).is_some(), linear, transposed) {
        (true, _, true) => Ok(WeightLayout::LinearTransposed),
        (false, true, true) if either => Err(format!(
            "{layer} {text} is square, so its shape does not tell whether it is [out, in] or [in, out]: --transposed {layer}, or --map"
        )
        .into()),
        (false, true, _) => Ok(WeightLayout::Linear),
        (false, false, true) if either => Ok(WeightLayout::LinearTransposed),
        _ => Err(format!("{layer} {text} does not have {features} inputs").into()),
    }
}

fn weight_shape<'a>(state: &'a StateDict<'_>, layer: &str) -> Result<(&'a [usize], String), Misfit> {
    let name = format!("{layer}.weight");
    let shape = state.shape(&name).filter(|shape| shape.len() >= 2);
    let shape = shape.ok_or_else(|| Misfit::from(format!("{name} is not a layer's weight")))?;
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    Ok((shape, sizes.join("x")))
}

/// What makes a layer look like a transposed convolution.
fn suspicion(layer: &str, shape: &[usize]) -> Option<&'static str> {
    let kernel = shape.get(2..).filter(|kernel| !kernel.is_empty())?;
    let name = layer.to_ascii_lowercase();
    let words = ["deconv", "transp", "upconv", "convt", "upsample"];
    if words.iter().any(|word| name.contains(word)) || name.split('.').any(|part| part.starts_with("up")) {
        return Some("sounds like a transposed convolution");
    }
    kernel
        .iter()
        .all(|k| k.is_multiple_of(2))
        .then_some("has an even kernel, as transposed convolutions have")
}
