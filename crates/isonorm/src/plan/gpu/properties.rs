use std::borrow::Cow;

/// What a plan has to know about a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuProperties {
    /// Its name, as the driver tells it.
    pub name: Cow<'static, str>,
    /// Compute capability: 90 is 9.0.
    pub compute_capability: u32,
    /// Multiprocessors.
    pub sms: u32,
    /// Multiprocessors that run clusters of eight blocks at once, if a block fills one; 0 where there are none. The blocks of a
    /// cluster are neighbours, which leaves some over.
    pub cluster_sms: u32,
    /// Threads that a multiprocessor holds.
    pub threads_per_sm: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_bytes_per_sm: u32,
    /// Bytes of shared memory that one block may ask for.
    pub shared_bytes_per_block: u32,
    /// Bytes of the second-level cache.
    pub l2_bytes: usize,
    /// Bytes of global memory.
    pub memory_bytes: usize,
    /// Bytes that a copy in global memory moves in a second, reads and writes counted.
    pub copy_bytes_per_second: f64,
}

/// What a copy reaches of the memory's peak, where it was not measured: 4.2 of 4.9 TB/s on an H200.
const COPY_SHARE: f64 = 0.86;

impl GpuProperties {
    /// GPUs that plans can be made for without having one, by the name that `isonorm explain --device` takes. Sizes are the
    /// vendor's.
    pub const KNOWN: [(&'static str, GpuProperties); 4] = [
        (
            "a100",
            GpuProperties {
                name: Cow::Borrowed("NVIDIA A100-SXM4-80GB"),
                compute_capability: 80,
                sms: 108,
                cluster_sms: 0,
                threads_per_sm: 2048,
                shared_bytes_per_sm: 164 << 10,
                shared_bytes_per_block: 163 << 10,
                l2_bytes: 40 << 20,
                memory_bytes: 80 << 30,
                copy_bytes_per_second: copy_speed(2.039e12),
            },
        ),
        (
            "rtx4090",
            GpuProperties {
                name: Cow::Borrowed("NVIDIA GeForce RTX 4090"),
                compute_capability: 89,
                sms: 128,
                cluster_sms: 0,
                threads_per_sm: 1536,
                shared_bytes_per_sm: 100 << 10,
                shared_bytes_per_block: 99 << 10,
                l2_bytes: 72 << 20,
                memory_bytes: 24 << 30,
                copy_bytes_per_second: copy_speed(1.008e12),
            },
        ),
        // Copies are measured, large sizes.
        ("h100", hopper("NVIDIA H100 80GB HBM3", 50 << 20, 80 << 30, 3.0e12)),
        ("h200", hopper("NVIDIA H200", 60 << 20, 141 << 30, 4.2e12)),
    ];

    /// One of [`KNOWN`](GpuProperties::KNOWN) by its short name.
    pub fn known(name: &str) -> Option<GpuProperties> {
        let known = GpuProperties::KNOWN.into_iter().find(|(short, _)| *short == name);
        known.map(|(_, properties)| properties)
    }

    /// One of [`KNOWN`](GpuProperties::KNOWN) by its [`name`](GpuProperties::name), as the driver tells it.
    pub fn named(name: &str) -> Option<GpuProperties> {
        let mut known = GpuProperties::KNOWN.into_iter().map(|(_, properties)| properties);
        known.find(|properties| properties.name == name)
    }

    /// The compute capability as it is written: `9.0`.
    pub fn compute_capability(&self) -> String {
        format!("{}.{}", self.compute_capability / 10, self.compute_capability % 10)
    }
}

/// A chip of compute capability 9.0 with 132 multiprocessors, behind such memory.
const fn hopper(name: &'static str, l2_bytes: usize, memory_bytes: usize, copy_bytes_per_second: f64) -> GpuProperties {
    GpuProperties {
        name: Cow::Borrowed(name),
        compute_capability: 90,
        sms: 132,
        // Counted, of one.
        cluster_sms: 120,
        threads_per_sm: 2048,
        shared_bytes_per_sm: 228 << 10,
        shared_bytes_per_block: 227 << 10,
        l2_bytes,
        memory_bytes,
        copy_bytes_per_second,
    }
}

/// Bytes a second of a copy in memory with this peak, where nobody measured one.
pub(crate) const fn copy_speed(peak_bytes_per_second: f64) -> f64 {
    peak_bytes_per_second * COPY_SHARE
}
