"""isonorm beside PyTorch and others, measured on this machine: `python -m isonorm.bench --help`.

=============  =====================================================================================
`cli`, `run`   the command line, and what runs the parts that it asks for
`cases`        problem strings, and the cases that are measured when none is named
`tensors`      inputs and parameters of a case, and its result in float64
`peers`        who carries a case out: isonorm, PyTorch, `torch.compile`, Liger-Kernel, quack, apex
`timing`       how a call is timed on a CPU and on a GPU
`layers`       part 1: single layers, forward and backward, beside a copy of the same bytes
`overhead`     part 2: what a call costs the host
`step`         part 3: a training step of ResNet-50 (`resnet`), before and after conversion
`block`        part 4: blocks of a transformer (`gpt`)
`models`       what parts 3 and 4 share: turns, peak memory, what does not run
`table`        tables for a terminal
`record`       results with the machine and versions that made them, as JSON
=============  =====================================================================================
"""
