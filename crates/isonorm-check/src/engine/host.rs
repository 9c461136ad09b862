use isonorm::{Result, View, ViewMut};

use super::pass::Memory;
use super::{Guarded, Start};

/// Host memory: the guarded tensor itself.
pub(super) struct Host(pub(super) Start);

impl Memory for Host {
    type Held = ();
    type Read<'a> = View<'a>;
    type Write<'a> = ViewMut<'a>;

    fn start(&self) -> Start {
        self.0
    }

    fn hold(&self, _: &Guarded) -> Result<()> {
        Ok(())
    }

    fn read<'a>(guarded: &'a Guarded, (): &'a ()) -> View<'a> {
        guarded.view()
    }

    fn write<'a>(guarded: &'a mut Guarded, (): &'a mut ()) -> ViewMut<'a> {
        guarded.view_mut()
    }

    fn fetch((): &(), _: &mut Guarded) -> Result<()> {
        Ok(())
    }
}
