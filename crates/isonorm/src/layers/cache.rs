//! Plans and workspaces that a layer has already made, so that a layer in a loop plans once.

use std::sync::{Mutex, PoisonError};

use crate::{Device, NormDesc, Plan, Result, Workspace};

/// How many problems a layer remembers: training and inference, forward and backward, a last smaller batch.
const CAPACITY: usize = 8;

/// A plan, and the memory for running it.
#[derive(Debug)]
struct Prepared {
    plan: Plan,
    workspace: Workspace,
}

/// A device and the plans made for it. What is in use is taken out of the list, so threads that share a layer run at the
/// same time; the lock is held only to look.
#[derive(Debug)]
pub(super) struct Engine {
    device: Device,
    prepared: Mutex<Vec<Prepared>>,
}

impl Engine {
    pub(super) fn new(device: Device) -> Engine {
        Engine {
            device,
            prepared: Mutex::new(Vec::with_capacity(CAPACITY)),
        }
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Runs `body` with a plan for this description.
    pub(super) fn run<R>(
        &self,
        desc: &NormDesc,
        body: impl FnOnce(&Device, &Plan, &mut Workspace) -> Result<R>,
    ) -> Result<R> {
        let mut prepared = match self.take(desc) {
            Some(prepared) => prepared,
            None => {
                let plan = self.device.plan(desc)?;
                Prepared {
                    workspace: Workspace::new(&plan),
                    plan,
                }
            }
        };
        let result = body(&self.device, &prepared.plan, &mut prepared.workspace);
        self.put_back(prepared);
        result
    }

    fn take(&self, desc: &NormDesc) -> Option<Prepared> {
        let mut list = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let at = list.iter().rposition(|p| p.plan.desc() == desc)?;
        Some(list.remove(at))
    }

    /// Most recently used last; the oldest makes room.
    fn put_back(&self, prepared: Prepared) {
        let mut list = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() == CAPACITY {
            list.remove(0);
        }
        list.push(prepared);
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.prepared.lock().map_or(0, |list| list.len())
    }
}

impl Clone for Engine {
    /// The same device; the clone makes plans of its own.
    fn clone(&self) -> Engine {
        Engine::new(self.device.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_once_for_each_description_and_forgets_the_oldest() {
        let engine = Engine::new(Device::cpu());
        let run = |n: usize| {
            engine.run(&NormDesc::layer_norm([n, 4], 1), |_, plan, _| {
                Ok(plan.desc().get_shape())
            })
        };
        for n in (1..=CAPACITY + 3).chain([1, 1]) {
            assert_eq!(run(n).unwrap().dims(), [n, 4]);
        }
        assert_eq!(engine.remembered(), CAPACITY);
        run(1).unwrap();
        assert_eq!(engine.remembered(), CAPACITY);
        assert_eq!(engine.clone().remembered(), 0);
    }

    #[test]
    fn a_failing_body_leaves_the_plan_usable() {
        let engine = Engine::new(Device::cpu());
        let desc = NormDesc::layer_norm([2, 4], 1);
        let bad = NormDesc::layer_norm([2, 4], 3);
        let error = engine.run(&bad, |_, _, _| Ok(())).unwrap_err();
        assert!(engine.run(&desc, |_, _, _| Err::<(), _>(error)).is_err());
        assert_eq!(engine.remembered(), 1);
    }
}
