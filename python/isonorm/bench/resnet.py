"""ResNet-50 as it is trained (He et al., 2015; the stride of a bottleneck is that of its 3x3 convolution), for where
torchvision is not installed. Names and initialization are those of its state dicts and of the paper's fan-out
rule."""

from __future__ import annotations

from typing import List

import torch
from torch import nn

# Bottlenecks of each stage, and what a bottleneck's output has more channels than its middle.
BLOCKS = (3, 4, 6, 3)
EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut."""

    def __init__(self, channels: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * EXPANSION, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * EXPANSION)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != width * EXPANSION:
            shortcut = nn.Conv2d(channels, width * EXPANSION, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(width * EXPANSION))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet50(nn.Module):
    """Images of 3 channels to logits of `classes`."""

    def __init__(self, classes: int = 1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = self._stage(64, 64, BLOCKS[0], 1)
        self.layer2 = self._stage(256, 128, BLOCKS[1], 2)
        self.layer3 = self._stage(512, 256, BLOCKS[2], 2)
        self.layer4 = self._stage(1024, 512, BLOCKS[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * EXPANSION, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _stage(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
        layers: List[nn.Module] = [Bottleneck(channels, width, stride)]
        layers += [Bottleneck(width * EXPANSION, width, 1) for _ in range(blocks - 1)]
        return nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def resnet50():
    """torchvision's ResNet-50 where it is installed, else the one above; and which it is."""
    try:
        from torchvision.models import resnet50 as theirs
    except Exception:  # Not installed, or not for this PyTorch.
        return ResNet50(), "isonorm.bench.resnet"
    return theirs(weights=None), "torchvision"
