//! What is printed and written.

use std::fmt::Write as _;
use std::path::Path;

use crate::chart::{Axis, Curve, draw};
use crate::train::History;

pub const NAMES: [&str; 2] = ["with BatchNorm+ReLU", "without"];
const SIGNS: [char; 2] = ['●', '○'];
/// Losses below are drawn as this.
const LEAST_LOSS: f64 = 1e-6;

fn curves(values: [&[f64]; 2]) -> [Curve<'_>; 2] {
    [0, 1].map(|i| Curve {
        sign: SIGNS[i],
        name: NAMES[i],
        values: values[i],
    })
}

/// Both learning curves: the accuracy on test images, and the loss on training images.
pub fn learning_curves([a, b]: [&History; 2]) -> String {
    let percent = Axis {
        position: |v| v,
        value: |p| p,
        label: |v| format!("{:.1} %", 100.0 * v),
    };
    let logarithmic = Axis {
        position: |v| (if v < LEAST_LOSS { LEAST_LOSS } else { v }).log10(),
        value: |p| 10f64.powf(p),
        label: |v| format!("{v:.4}"),
    };
    let accuracy = draw("test accuracy", &percent, &curves([&a.accuracy, &b.accuracy]));
    let loss = draw("training loss", &logarithmic, &curves([&a.loss, &b.loss]));
    format!("{accuracy}\n{loss}")
}

/// The last epoch in numbers.
pub fn table(histories: [&History; 2]) -> String {
    let mut text = format!(
        "{:<21}{:>14}{:>15}{:>9}{:>19}\n",
        "after the last epoch", "test accuracy", "training loss", "time", "of it in isonorm"
    );
    for (name, h) in NAMES.iter().zip(histories) {
        let last = |v: &[f64]| v.last().copied().unwrap_or(f64::NAN);
        let share = if h.normalizing.is_zero() {
            "-".into()
        } else {
            format!("{:.0} %", 100.0 * h.normalizing.as_secs_f64() / h.time.as_secs_f64())
        };
        let accuracy = format!("{:.1} %", 100.0 * last(&h.accuracy));
        let time = format!("{:.1} s", h.time.as_secs_f64());
        text += &format!("{name:<21}{accuracy:>14}{:>15.5}{time:>9}{share:>19}\n", last(&h.loss));
    }
    text
}

/// Writes both learning curves as a table with a line an epoch.
pub fn save_csv(path: &Path, [a, b]: [&History; 2]) -> std::io::Result<()> {
    let mut text = String::from("epoch,loss_with,accuracy_with,loss_without,accuracy_without\n");
    for epoch in 0..a.loss.len() {
        let _ = writeln!(
            text,
            "{},{},{},{},{}",
            epoch + 1,
            a.loss[epoch],
            a.accuracy[epoch],
            b.loss[epoch],
            b.accuracy[epoch]
        );
    }
    std::fs::write(path, text)
}
