//! Which group and which parameters an element belongs to, from its logical coordinates.

use isonorm::{Layout, Norm, NormDesc, Over};

/// Group and parameter of every element, by its offset in memory.
#[derive(Clone, Debug)]
pub struct Index {
    layout: Layout,
    dims: Vec<usize>,
    /// The group of the element at each offset.
    pub group: Vec<usize>,
    /// The affine parameter of the element at each offset.
    pub parameter: Vec<usize>,
    /// The channel of each group, for ops with running statistics.
    pub channel: Vec<usize>,
    /// The number of affine parameters.
    pub parameters: usize,
    members: Vec<usize>,
    starts: Vec<usize>,
}

impl Index {
    /// The index of this problem, which must be valid.
    pub fn of(desc: &NormDesc) -> Index {
        let shape = desc.get_shape();
        let dims = shape.dims().to_vec();
        let (layout, norm) = (desc.get_layout(), desc.get_norm());
        let elements = dims.iter().product();
        let (groups, parameters) = sizes(norm, &dims);
        let mut index = Index {
            layout,
            dims,
            group: Vec::with_capacity(elements),
            parameter: Vec::with_capacity(elements),
            channel: Vec::new(),
            parameters,
            members: Vec::new(),
            starts: Vec::new(),
        };
        for offset in 0..elements {
            let (group, parameter) = belongs(norm, &index.dims, &index.coordinates(offset));
            index.group.push(group);
            index.parameter.push(parameter);
        }
        if norm.has_running_statistics() {
            index.channel = (0..groups).map(|g| g % parameters).collect();
        }
        index.collect_members(groups);
        index
    }

    fn collect_members(&mut self, groups: usize) {
        self.starts = vec![0; groups + 1];
        for &g in &self.group {
            self.starts[g + 1] += 1;
        }
        for g in 0..groups {
            self.starts[g + 1] += self.starts[g];
        }
        let mut next = self.starts.clone();
        self.members = vec![0; self.group.len()];
        for (offset, &g) in self.group.iter().enumerate() {
            self.members[next[g]] = offset;
            next[g] += 1;
        }
    }

    /// The number of groups.
    pub fn groups(&self) -> usize {
        self.starts.len() - 1
    }

    /// The offsets of a group's elements, ascending.
    pub fn members(&self, group: usize) -> &[usize] {
        &self.members[self.starts[group]..self.starts[group + 1]]
    }

    /// The place, in the order of the shape, of the element at this offset in memory.
    pub fn logical(&self, offset: usize) -> usize {
        if self.layout == Layout::ChannelsFirst {
            return offset;
        }
        row_major(&self.dims, &self.coordinates(offset))
    }

    /// The coordinates, in the order of the shape, of the element at this offset in memory.
    pub fn coordinates(&self, offset: usize) -> Vec<usize> {
        let mut rest = offset;
        let mut take = |size: usize| {
            let coordinate = rest % size;
            rest /= size;
            coordinate
        };
        let mut coordinates = vec![0; self.dims.len()];
        if self.layout == Layout::ChannelsLast {
            coordinates[1] = take(self.dims[1]);
            for d in (2..self.dims.len()).rev() {
                coordinates[d] = take(self.dims[d]);
            }
            coordinates[0] = take(self.dims[0]);
        } else {
            for d in (0..self.dims.len()).rev() {
                coordinates[d] = take(self.dims[d]);
            }
        }
        coordinates
    }
}

/// The number of groups and of affine parameters.
fn sizes(norm: Norm, dims: &[usize]) -> (usize, usize) {
    let product = |d: &[usize]| d.iter().product::<usize>();
    match norm {
        Norm::Batch => (dims[1], dims[1]),
        Norm::Instance => (dims[0] * dims[1], dims[1]),
        Norm::Group { groups } => (dims[0] * groups, dims[1]),
        Norm::Layer(Over::Channels) | Norm::Rms(Over::Channels) => (dims[0] * product(&dims[2..]), dims[1]),
        Norm::Layer(Over::Last(n)) | Norm::Rms(Over::Last(n)) => {
            let (rows, row) = dims.split_at(dims.len() - n);
            (product(rows), product(row))
        }
    }
}

/// The place of these coordinates in the order of the shape.
fn row_major(dims: &[usize], at: &[usize]) -> usize {
    let step = |place, (&size, &i): (&usize, &usize)| place * size + i;
    dims.iter().zip(at).fold(0, step)
}

/// The group and the affine parameter of the element at these coordinates.
fn belongs(norm: Norm, dims: &[usize], at: &[usize]) -> (usize, usize) {
    match norm {
        Norm::Batch => (at[1], at[1]),
        Norm::Instance => (at[0] * dims[1] + at[1], at[1]),
        Norm::Group { groups } => {
            let width = dims[1] / groups;
            (at[0] * groups + at[1] / width, at[1])
        }
        Norm::Layer(Over::Channels) | Norm::Rms(Over::Channels) => {
            let positions: usize = dims[2..].iter().product();
            (at[0] * positions + row_major(&dims[2..], &at[2..]), at[1])
        }
        Norm::Layer(Over::Last(n)) | Norm::Rms(Over::Last(n)) => {
            let split = dims.len() - n;
            let row = row_major(&dims[..split], &at[..split]);
            (row, row_major(&dims[split..], &at[split..]))
        }
    }
}
