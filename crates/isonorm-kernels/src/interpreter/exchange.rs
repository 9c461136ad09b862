//! What the lanes of a warp get from each other.

use super::Operation;
use crate::simt::WARP;

/// The answers for all lanes, from each lane's value and operand.
pub(crate) fn answers(operation: Operation, values: &[u32; 32], operands: &[u32; 32]) -> [u32; 32] {
    let from = |source: u32, own: usize| {
        if source < WARP {
            values[source as usize]
        } else {
            values[own]
        }
    };
    std::array::from_fn(|lane| match operation {
        Operation::ShuffleXor => from(lane as u32 ^ operands[lane], lane),
        Operation::ShuffleDown => from((lane as u32).saturating_add(operands[lane]), lane),
        Operation::ShuffleIndex => from(operands[lane] % WARP, lane),
        Operation::Ballot => (0..32).filter(|&i| values[i] != 0).fold(0, |bits, i| bits | 1 << i),
        Operation::Barrier => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffles_take_the_lane_that_is_meant() {
        let values = std::array::from_fn(|lane| lane as u32 * 10);
        assert_eq!(answers(Operation::ShuffleXor, &values, &[3; 32])[5], 60);
        assert_eq!(answers(Operation::ShuffleDown, &values, &[4; 32])[27], 310);
        assert_eq!(answers(Operation::ShuffleDown, &values, &[4; 32])[28], 280);
        assert_eq!(answers(Operation::ShuffleIndex, &values, &[7; 32])[0], 70);
        let odd = std::array::from_fn(|lane| lane as u32 % 2);
        assert_eq!(answers(Operation::Ballot, &odd, &[0; 32])[0], 0xaaaa_aaaa);
    }
}
