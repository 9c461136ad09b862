//! What is said about each rung, here and where it was published.

use isonorm::Rung;
use isonorm_report::record::Published;

/// What it does, in a few words.
pub(super) fn about(rung: Rung) -> &'static str {
    match rung {
        Rung::BnTileNc => "tiles of 32 channels, E[x²] − E[x]²",
        Rung::BnNaive => "a thread a channel, three kernels",
        Rung::BnWelfordBlock => "a block a channel, Welford, a tree",
        Rung::BnWelfordWarp => "the same with shuffles",
        Rung::BnWelfordFused => "and running statistics, scale and shift",
        Rung::BnReluTrain => "and the ReLU in the store",
        Rung::BnReluEval => "a thread walks the batch",
        Rung::BnEvalVec4 => "16 bytes an access, two kernels",
        Rung::BnReluBackward => "a block a channel, both tensors twice",
        Rung::LnNaive => "a thread a row, three loops",
        Rung::LnShared => "a block a row, a tree, E[x²] − E[x]²",
        Rung::LnShuffle => "the same with shuffles",
        Rung::LnVec4 => "16 bytes an access",
    }
}

/// What was published about it.
pub(super) fn published(rung: Rung) -> Option<Published> {
    let of = |seconds, machine: &str, claim: &str| {
        Some(Published {
            seconds,
            machine: machine.into(),
            claim: claim.into(),
        })
    };
    let contest = "the GPU of an online contest of kernels";
    let resnet = "not named";
    let laptop = "RTX 4050, 1024x1024";
    match rung {
        Rung::BnTileNc => of(None, contest, "2.54 times as fast as the next entry, timed at 5000x512"),
        Rung::BnNaive => of(
            Some(1.2e-3),
            resnet,
            "a layer of a ResNet-50, 8.3 GB/s at batch 64 and 256 channels, 12 % of cuDNN",
        ),
        Rung::BnWelfordFused => of(
            Some(0.18e-3),
            resnet,
            "52 GB/s, 92 % of cuDNN; one read and one write were claimed, it reads twice",
        ),
        Rung::BnReluBackward => of(None, resnet, "its dx stopped at 1/σ, which is not the gradient"),
        Rung::LnNaive => of(Some(2.3886e-3), laptop, ""),
        Rung::LnShared => of(Some(0.081_68e-3), laptop, ""),
        Rung::LnShuffle => of(Some(0.072_61e-3), laptop, ""),
        Rung::LnVec4 => of(Some(0.056_32e-3), laptop, ""),
        _ => None,
    }
}
