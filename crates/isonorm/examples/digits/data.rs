//! The handwritten digits: 1,797 images of 8×8 pixels, shipped beside this file (see `README.md` there).

use std::error::Error;
use std::io::Read;

use flate2::read::GzDecoder;
use isonorm::{Layout, Tensor};

/// A line an image: 64 pixels of 0 to 16, row by row, and the digit.
const FILE: &[u8] = include_bytes!("digits.csv.gz");

pub const SIDE: usize = 8;
pub const CLASSES: usize = 10;
const PIXELS: usize = SIDE * SIDE;
const WHITE: f32 = 16.0;

/// The last images of the file are for testing: neighbours in the file look alike, so a random draw would put nearly the same
/// image into both parts.
const TESTED: usize = 360;

/// Images with their digits.
#[derive(Default)]
pub struct Images {
    pixels: Vec<f32>,
    labels: Vec<usize>,
}

impl Images {
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    pub fn labels(&self) -> &[usize] {
        &self.labels
    }

    /// The images at these places, `N, 1, 8, 8`, and their digits.
    pub fn batch(&self, at: &[usize]) -> isonorm::Result<(Tensor, Vec<usize>)> {
        let pixels: Vec<f32> = at
            .iter()
            .flat_map(|&i| &self.pixels[i * PIXELS..(i + 1) * PIXELS])
            .copied()
            .collect();
        let x = Tensor::new([at.len(), 1, SIDE, SIDE], pixels)?.with_layout(Layout::ChannelsLast);
        Ok((x, at.iter().map(|&i| self.labels[i]).collect()))
    }

    /// All of them.
    pub fn all(&self) -> isonorm::Result<Tensor> {
        let x = Tensor::new([self.len(), 1, SIDE, SIDE], self.pixels.clone())?;
        Ok(x.with_layout(Layout::ChannelsLast))
    }

    fn push(&mut self, line: &str) -> Result<(), Box<dyn Error>> {
        let numbers = line.split(',').map(str::parse).collect::<Result<Vec<u8>, _>>()?;
        let [pixels @ .., label] = numbers.as_slice() else {
            return Err("an empty line".into());
        };
        if pixels.len() != PIXELS || usize::from(*label) >= CLASSES {
            return Err(format!("not an image and a digit: {line}").into());
        }
        self.pixels.extend(pixels.iter().map(|&p| f32::from(p) / WHITE));
        self.labels.push(usize::from(*label));
        Ok(())
    }
}

/// The images for training and those for testing.
pub fn load() -> Result<(Images, Images), Box<dyn Error>> {
    let mut text = String::new();
    GzDecoder::new(FILE).read_to_string(&mut text)?;
    let (mut train, mut test) = (Images::default(), Images::default());
    let tested_from = text.lines().count().saturating_sub(TESTED);
    for (i, line) in text.lines().enumerate() {
        let part = if i < tested_from { &mut train } else { &mut test };
        part.push(line)?;
    }
    Ok((train, test))
}
