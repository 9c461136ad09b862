//! Kernels without some of their stages, to find out what these cost. No plan takes them: their results are wrong.
//!
//! The generated PTX is rewritten before the driver compiles it. An instruction that is left out stays, under a predicate that is never true
//! and of which the compiler does not know that: deleted, it would take with it all that leads to it. What memory such a kernel
//! accesses, the whole one accesses too, and it waits for nobody who does not send.

use std::fmt::{self, Write as _};

use crate::modules::Module;

/// A stage of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Loads,
    Stores,
    Exchange,
    Barriers,
    Everything,
}

impl Stage {
    const ALL: [(Stage, &str); 5] = [
        (Stage::Loads, "loads"),
        (Stage::Stores, "stores"),
        (Stage::Exchange, "exchange"),
        (Stage::Barriers, "barriers"),
        (Stage::Everything, "everything"),
    ];
}

/// A set of stages that are left out; by default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ablation {
    /// A bit for each stage.
    stages: u8,
}

impl Ablation {
    /// Loads and asynchronous copies from global memory: a thread has some numbers instead.
    pub const LOADS: Ablation = Ablation::of(Stage::Loads);
    /// Stores to global memory.
    pub const STORES: Ablation = Ablation::of(Stage::Stores);
    /// What blocks tell each other, in a cluster and through global memory, and that they wait for it.
    pub const EXCHANGE: Ablation = Ablation::of(Stage::Exchange);
    /// That, and that the threads of a block wait for each other. Not without the former, which relies on it: a block whose threads do not wait
    /// for each other would leave messages over those that others still wait for.
    pub const SYNC: Ablation = Ablation::EXCHANGE.and(Ablation::of(Stage::Barriers));
    /// All that a kernel does: blocks start and end.
    pub const EVERYTHING: Ablation = Ablation::of(Stage::Everything);

    /// What a study of a kernel measures, besides the whole kernel: stages left out, and stages left alone.
    pub const STUDY: [Ablation; 8] = [
        Ablation::EXCHANGE,
        Ablation::SYNC,
        Ablation::LOADS,
        Ablation::STORES,
        Ablation::LOADS.and(Ablation::STORES),
        Ablation::STORES.and(Ablation::SYNC),
        Ablation::LOADS.and(Ablation::SYNC),
        Ablation::EVERYTHING,
    ];

    const fn of(stage: Stage) -> Ablation {
        Ablation {
            stages: 1 << stage as u8,
        }
    }

    /// Both left out.
    #[must_use]
    pub const fn and(self, other: Ablation) -> Ablation {
        Ablation {
            stages: self.stages | other.stages,
        }
    }

    /// Whether a stage is left out.
    fn has(self, stage: Stage) -> bool {
        self.stages & Ablation::of(stage).stages != 0
    }
}

impl fmt::Display for Ablation {
    /// The names of the stages, with commas; `nothing` if there are none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left_out = Stage::ALL.into_iter().filter(|(stage, _)| self.has(*stage));
        f.write_str(left_out.next().map_or("nothing", |(_, name)| name))?;
        left_out.try_for_each(|(_, name)| write!(f, ", {name}"))
    }
}

impl Module {
    /// PTX of one of the module's entry points alone, without these stages; nothing if there is no such entry point.
    pub fn without(&self, entry: &str, ablation: Ablation) -> Option<String> {
        let start = format!(".visible .entry {entry}(");
        let header = self.ptx.lines().take_while(|line| !line.starts_with(".visible .entry"));
        let mut body = self.ptx.lines().skip_while(|line| *line != start).peekable();
        body.peek()?;
        let mut rewriter = Rewriter::new(ablation);
        for line in header {
            rewriter.keep(line);
        }
        for line in body {
            rewriter.line(line);
            if rewriter.has_ended {
                break;
            }
        }
        Some(rewriter.text)
    }
}

/// The instructions of [`simt`](crate::simt) that make up each stage, as they begin.
const STAGES: [(&str, Stage); 12] = [
    ("ld.global.", Stage::Loads),
    ("cp.async.c", Stage::Loads),
    ("st.global.", Stage::Stores),
    ("ld.relaxed.gpu.", Stage::Exchange),
    ("ld.acquire.gpu.", Stage::Exchange),
    ("ld.shared::cluster.", Stage::Exchange),
    ("st.relaxed.gpu.", Stage::Exchange),
    ("st.async.", Stage::Exchange),
    ("red.release.gpu.", Stage::Exchange),
    ("mbarrier.", Stage::Exchange),
    ("barrier.cluster.", Stage::Exchange),
    ("bar.sync ", Stage::Barriers),
];
/// What is repeated until another block has sent.
const POLLS: [&str; 3] = ["ld.relaxed.gpu.", "ld.acquire.gpu.", "mbarrier.try_wait."];
/// What all threads of a group come to: it cannot have a predicate.
const TOGETHER: [&str; 2] = ["barrier.cluster.", "bar.sync "];

/// Writes an entry point line by line, without some stages.
struct Rewriter {
    ablation: Ablation,
    text: String,
    /// Of braces.
    depth: u32,
    is_prepared: bool,
    has_ended: bool,
    /// The last one.
    label: String,
    /// Where a loop begins that waits for another block, until its end.
    polling: Option<String>,
}

impl Rewriter {
    fn new(ablation: Ablation) -> Rewriter {
        Rewriter {
            ablation,
            text: String::new(),
            depth: 0,
            is_prepared: false,
            has_ended: false,
            label: String::new(),
            polling: None,
        }
    }

    fn keep(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn line(&mut self, line: &str) {
        let trimmed = line.trim();
        match trimmed {
            "{" => self.depth += 1,
            "}" => {
                self.depth -= 1;
                self.has_ended = self.depth == 0;
            }
            _ if self.depth > 0 => return self.statement(line, trimmed),
            _ => {}
        }
        self.keep(line);
    }

    fn statement(&mut self, line: &str, trimmed: &str) {
        if !self.is_prepared && !trimmed.starts_with('.') {
            self.prepare();
        }
        if let Some(label) = trimmed.strip_suffix(':') {
            self.label = label.to_owned();
        }
        if self.polling.as_deref().is_some_and(|label| is_branch(trimmed, label)) {
            // Once is enough.
            self.polling = None;
            return;
        }
        let (predicate, instruction) = parts(trimmed);
        let stage = STAGES.iter().find(|(start, _)| instruction.starts_with(start));
        match stage {
            Some((_, stage)) if self.ablation.has(*stage) => self.leave_out(predicate, instruction),
            _ => self.keep(line),
        }
    }

    /// Behind the declarations: a predicate that never holds, for a grid has one dimension, and what registers hold instead of what is loaded.
    fn prepare(&mut self) {
        self.is_prepared = true;
        self.keep(".reg .pred %never;\n.reg .b32 %instead;");
        self.keep("mov.u32 %instead, %nctaid.z;\nsetp.eq.u32 %never, %instead, 65535;\nmov.u32 %instead, %tid.x;");
        if self.ablation.has(Stage::Everything) {
            self.keep("@!%never ret;");
        }
    }

    fn leave_out(&mut self, predicate: Option<&str>, instruction: &str) {
        let starts = |starts: &[&str]| starts.iter().any(|start| instruction.starts_with(start));
        if starts(&TOGETHER) {
            return;
        }
        if starts(&POLLS) {
            self.polling = Some(self.label.clone());
        }
        if instruction.starts_with("mbarrier.try_wait.") {
            // As if it had come.
            let result = results(instruction).next().unwrap_or_default();
            self.keep(&format!("setp.eq.u32 {result}, 0, 0;"));
            return;
        }
        if instruction.starts_with("ld.") {
            for register in results(instruction) {
                let convert = match register {
                    r if r.starts_with("%rs") => "cvt.u16.u32",
                    r if r.starts_with("%rd") => "cvt.u64.u32",
                    _ => "mov.b32",
                };
                self.keep(&format!("{convert} {register}, %instead;"));
            }
        }
        // Writing to a string cannot fail.
        let _ = match predicate {
            None => writeln!(self.text, "@%never {instruction}"),
            Some(p) => writeln!(
                self.text,
                "{{\n.reg .pred %both;\nand.pred %both, {p}, %never;\n@%both {instruction}\n}}"
            ),
        };
    }
}

/// The predicate of a statement, and its instruction.
fn parts(statement: &str) -> (Option<&str>, &str) {
    let guarded = statement
        .strip_prefix('@')
        .and_then(|rest| rest.split_once(char::is_whitespace));
    guarded.map_or((None, statement), |(predicate, instruction)| {
        (Some(predicate), instruction.trim_start())
    })
}

/// The registers that an instruction with results writes: what is before its first address.
fn results(instruction: &str) -> impl Iterator<Item = &str> {
    let operands = instruction
        .split_once(char::is_whitespace)
        .map_or("", |(_, operands)| operands);
    let before = operands.split('[').next().unwrap_or_default();
    before
        .split([',', '{', '}'])
        .map(str::trim)
        .filter(|register| !register.is_empty())
}

/// Whether a statement is a branch to a label, under a predicate.
fn is_branch(statement: &str, label: &str) -> bool {
    let (predicate, instruction) = parts(statement);
    let target = instruction
        .strip_prefix("bra")
        .map(|rest| rest.trim_start_matches(".uni").trim());
    predicate.is_some() && target.and_then(|target| target.strip_suffix(';')) == Some(label)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::modules::{LADDER, ROWS};

    const SYNC_AND_MEMORY: Ablation = Ablation::LOADS.and(Ablation::STORES).and(Ablation::SYNC);

    const HEADER: &str = ".version 8.1\n";
    const OTHER: &str = ".visible .entry other(\n)\n{\n\tret;\n}\n";
    const KERNEL: &str = "\
.visible .entry kernel(
\t.param .align 8 .b8 kernel_param_0[8]
)
.maxntid 256
{
\t.reg .b32 \t%r<4>;
\t.reg .b64 \t%rd<4>;
\tld.param.b64 \t%rd1, [kernel_param_0];
\tld.global.nc.L1::evict_last.v2.u32 {%r1, %r2}, [%rd1];
$L__BB0_1:
\tld.relaxed.gpu.global.v2.u64 {%rd2, %rd3}, [%rd1];
\tsetp.ne.b64 \t%p1, %rd2, %rd3;
\t@%p1 bra \t$L__BB0_1;
\tbar.sync \t0;
\t{
.reg .pred p<4>;
@p0 st.global.u32 [%rd1], %r1;
}
\tret;
}
";

    /// A module of two kernels.
    fn module() -> Module {
        Module {
            family: "test",
            data: "f32",
            compute_capability: 90,
            ptx: [HEADER, OTHER, KERNEL].concat().leak(),
        }
    }

    #[test]
    fn what_is_left_out_has_a_predicate_that_never_holds() {
        let text = module().without("kernel", SYNC_AND_MEMORY).unwrap();
        let expected = "\
.version 8.1
.visible .entry kernel(
\t.param .align 8 .b8 kernel_param_0[8]
)
.maxntid 256
{
\t.reg .b32 \t%r<4>;
\t.reg .b64 \t%rd<4>;
.reg .pred %never;
.reg .b32 %instead;
mov.u32 %instead, %nctaid.z;
setp.eq.u32 %never, %instead, 65535;
mov.u32 %instead, %tid.x;
\tld.param.b64 \t%rd1, [kernel_param_0];
mov.b32 %r1, %instead;
mov.b32 %r2, %instead;
@%never ld.global.nc.L1::evict_last.v2.u32 {%r1, %r2}, [%rd1];
$L__BB0_1:
cvt.u64.u32 %rd2, %instead;
cvt.u64.u32 %rd3, %instead;
@%never ld.relaxed.gpu.global.v2.u64 {%rd2, %rd3}, [%rd1];
\tsetp.ne.b64 \t%p1, %rd2, %rd3;
\t{
.reg .pred p<4>;
{
.reg .pred %both;
and.pred %both, p0, %never;
@%both st.global.u32 [%rd1], %r1;
}
}
\tret;
}
";
        assert_eq!(text, expected);
    }

    #[test]
    fn nothing_is_left_out_unasked_and_everything_ends_at_once() {
        let whole = module().without("kernel", Ablation::default()).unwrap();
        let prepared = [".reg .pred %never;", ".reg .b32 %instead;", "%instead,"];
        let kept = whole.lines().filter(|line| !prepared.iter().any(|p| line.contains(p)));
        assert!(kept.eq(HEADER.lines().chain(KERNEL.lines())));
        let text = module().without("kernel", Ablation::EVERYTHING).unwrap();
        assert!(text.contains("@!%never ret;\n\tld.param"));
        assert!(module().without("missing", Ablation::EVERYTHING).is_none());
    }

    #[test]
    fn the_stages_say_their_names() {
        let names = Ablation::STUDY.map(|ablation| ablation.to_string());
        assert_eq!(names[0], "exchange");
        assert_eq!(names[6], "loads, exchange, barriers");
        assert_eq!(names[7], "everything");
        assert_eq!(Ablation::default().to_string(), "nothing");
    }

    /// In the text of every kernel that there is: all of the stages' instructions are left out, and nobody waits.
    #[test]
    fn every_kernel_can_be_ablated() {
        for module in ROWS.iter().chain(LADDER) {
            for entry in module.entries() {
                let [whole, text] = [Ablation::default(), SYNC_AND_MEMORY].map(|a| module.without(entry, a).unwrap());
                let of = |line: &str| format!("{} {entry}: {line}", module.family);
                let is_of_stage = |line: &str| STAGES.iter().any(|(start, _)| parts(line).1.starts_with(start));
                let mut guarded = 0;
                for line in text.lines().map(str::trim) {
                    let is_guarded = line.starts_with("@%never ") || line.starts_with("@%both ");
                    assert_eq!(is_of_stage(line), is_guarded, "{}", of(line));
                    guarded += usize::from(is_guarded);
                }
                let (mut left_out, mut label, mut loops) = (0, "", BTreeSet::new());
                for line in whole.lines().map(str::trim) {
                    label = line.strip_suffix(':').unwrap_or(label);
                    let starts = |starts: &[&str]| starts.iter().any(|start| parts(line).1.starts_with(start));
                    left_out += usize::from(is_of_stage(line) && !starts(&TOGETHER) && !starts(&POLLS[2..]));
                    if starts(&POLLS) {
                        loops.insert(label);
                    }
                }
                assert_eq!(guarded, left_out, "{}", of("instructions of all stages"));
                for label in loops {
                    let branches = |text: &str| text.lines().filter(|line| is_branch(line.trim(), label)).count();
                    assert_eq!(branches(&text) + 1, branches(&whole), "{}", of(label));
                }
            }
        }
    }
}
