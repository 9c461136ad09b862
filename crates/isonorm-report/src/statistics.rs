/// The geometric mean; `None` of nothing.
#[must_use]
pub fn geometric_mean(ratios: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (count, sum) = ratios.into_iter().fold((0usize, 0.0), |(n, s), r| (n + 1, s + r.ln()));
    (count > 0).then(|| (sum / count as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_geometric_mean_balances_ratios() {
        assert!((geometric_mean([0.5, 2.0]).unwrap() - 1.0).abs() < 1e-15);
        assert_eq!(geometric_mean([]), None);
    }
}
