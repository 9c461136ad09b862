//! The problem, from its words, the flags and the files.

use isonorm::{DType, NormDesc, Shape};

use super::args::Args;
use super::files::Files;
use crate::error::{Error, Result};

/// Layouts whose files have their channels last.
const CHANNELS_LAST: [&str; 4] = ["channels_last", "nlc", "nhwc", "ndhwc"];

/// Puts the problem string together and parses it. Shape and type come from the input, affine and parameter type from the
/// files that were given, unless the problem says so.
pub(super) fn describe(args: &Args, files: &Files<'_>) -> Result<NormDesc> {
    let text = args.problem.join(" ");
    let mut words: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
    words.extend(args.words().map(|(key, value)| format!("{key}={value}")));
    let said = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));

    let (source, array) = &files.x;
    let last = said("layout").is_some_and(|layout| CHANNELS_LAST.contains(&layout));
    let shape = logical(&array.shape, last).map_err(|reason| Error::usage(format!("{source}: {reason}")))?;
    let dtype = array.data.dtype();
    agrees(&format!("{source} is {shape} (N,C,spatial)"), said("x"), shape)?;
    agrees(&format!("{source} has elements of type {dtype}"), said("dtype"), dtype)?;

    let mut more = vec![format!("x={shape}"), format!("dtype={dtype}")];
    if said("affine").is_none() {
        more.push(format!("affine={}", affine(files)));
    }
    if let (None, Some(param)) = (said("param"), parameter_type(files)) {
        more.push(format!("param={param}"));
    }
    words.retain(|word| !word.starts_with("x=") && !word.starts_with("dtype="));
    words.extend(more);
    Ok(words.join(" ").parse()?)
}

/// A file's sizes in the order N, C, spatial.
fn logical(sizes: &[usize], channels_last: bool) -> Result<Shape, String> {
    let mut sizes = sizes.to_vec();
    if sizes.is_empty() {
        return Err("a scalar cannot be normalized".into());
    }
    if channels_last {
        let spatial_and_channels = &mut sizes[1..];
        spatial_and_channels.rotate_right(spatial_and_channels.len().min(1));
    }
    Shape::try_from(sizes)
}

/// Refuses what the problem says about the input when the file says otherwise.
fn agrees<T: std::str::FromStr<Err = String> + PartialEq>(file: &str, said: Option<&str>, is: T) -> Result<()> {
    let Some(said) = said else { return Ok(()) };
    match said.parse::<T>() {
        Ok(value) if value == is => Ok(()),
        Ok(_) => Err(Error::usage(format!("{file}, the problem says {said}"))),
        Err(reason) => Err(Error::usage(reason)),
    }
}

/// The word of a problem string for the parameters that were given.
fn affine(files: &Files<'_>) -> &'static str {
    match (&files.weight, &files.bias) {
        (Some(_), Some(_)) => "full",
        (Some(_), None) => "weight",
        (None, _) => "none",
    }
}

fn parameter_type(files: &Files<'_>) -> Option<DType> {
    let parameter = files.weight.as_ref().or(files.running_mean.as_ref())?;
    Some(parameter.1.data.dtype())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_channels_last_is_named_n_c_spatial() {
        let shape = |sizes: &[usize], last| logical(sizes, last).unwrap().to_string();
        assert_eq!(shape(&[2, 5, 7, 3], true), "2x3x5x7");
        assert_eq!(shape(&[2, 5, 7, 3], false), "2x5x7x3");
        assert_eq!(shape(&[4, 3], true), "4x3");
        assert_eq!(shape(&[4], true), "4");
    }
}
