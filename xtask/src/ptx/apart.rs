//! Barriers that the threads of a warp would not reach together.
//!
//! LLVM leaves a barrier where it is. rustc's jump threading, which comes before it, does not know what a barrier is: of
//! `if a { … } barrier(); if a { … }` it makes two arms with a barrier each. Threads of a warp for which `a` differs then wait for each other at
//! two places, and for ever.

use std::collections::{BTreeSet, HashMap, HashSet};

/// A stretch of instructions without a branch.
#[derive(Default)]
struct Block {
    /// Whether threads wait for each other at its end.
    waits: bool,
    successors: Vec<usize>,
    /// What decides between two successors.
    condition: Option<String>,
}

/// A kernel's instructions as they matter here.
#[derive(Default)]
struct Kernel {
    name: String,
    blocks: Vec<Block>,
    /// Registers that differ between the threads of a warp by their number, and not by what was loaded, or computed of numbers that were.
    own: HashSet<String>,
}

/// Instructions whose results are the same for all, or data.
const OF_DATA: [&str; 8] = ["ld", "shfl", "vote", "match", "atom", "redux", "activemask", "cvta"];
/// Instructions without a result.
const WITHOUT_RESULT: [&str; 9] = ["st", "bra", "brx", "bar", "ret", "exit", "red.", "cp.", "fence"];

/// Branches on the number of a thread whose arms lead to different barriers.
pub fn barriers(ptx: &str) -> Vec<String> {
    let kernels = bodies(ptx).into_iter().map(|(name, body)| kernel(name, &body));
    kernels.flat_map(|kernel| kernel.apart()).collect()
}

/// The statements of each kernel, labels among them with their colon.
fn bodies(ptx: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let (mut name, mut statement, mut depth) = (None::<String>, String::new(), 0);
    for line in ptx.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        if let Some((_, after)) = line.split_once(".entry ") {
            name = Some(after.split('(').next().unwrap_or_default().to_owned());
        }
        let (before, opens, closes) = (depth, line.matches('{').count(), line.matches('}').count());
        depth += opens as i32 - closes as i32;
        if let (Some(name), 0, 1..) = (&name, before, depth) {
            found.push((name.clone(), Vec::new()));
            continue;
        }
        let Some((_, statements)) = found.last_mut().filter(|_| before > 0) else {
            continue;
        };
        // A scope's braces stand at the ends of a line; an operand's do not.
        let line = line.strip_prefix('{').unwrap_or(line);
        let (label, line) = match line.split_once(':') {
            Some((label, rest)) if line.starts_with('$') => (Some(label), rest.trim()),
            _ => (None, line),
        };
        statements.extend(label.map(|label| format!("{label}:")));
        for part in line.split_inclusive(';') {
            statement.push_str(part.trim());
            statement.push(' ');
            if part.ends_with(';') {
                statements.push(statement.trim_end_matches([' ', ';']).to_owned());
                statement.clear();
            }
        }
        if line == "}" {
            statement.clear();
        }
    }
    found
}

fn kernel(name: String, statements: &[String]) -> Kernel {
    let mut kernel = Kernel {
        name,
        blocks: vec![Block::default()],
        ..Kernel::default()
    };
    // Where labels are, which labels a table names, and the labels that blocks lead to.
    let (mut labels, mut tables) = (HashMap::new(), HashMap::<&str, Vec<&str>>::new());
    let mut leads: Vec<(usize, Vec<&str>, bool)> = Vec::new();
    let mut label = "";
    for statement in statements {
        let last = kernel.blocks.len() - 1;
        if let Some(of_block) = statement.strip_suffix(':') {
            label = of_block;
            leads.push((last, Vec::new(), true));
            labels.insert(of_block, last + 1);
            kernel.blocks.push(Block::default());
            continue;
        }
        let (predicate, rest) = match statement.strip_prefix('@') {
            Some(guarded) => guarded.split_once(char::is_whitespace).unwrap_or((guarded, "")),
            None => ("", statement.as_str()),
        };
        let (opcode, operands) = rest.trim().split_once(char::is_whitespace).unwrap_or((rest, ""));
        let goes_on = !predicate.is_empty();
        match opcode {
            ".branchtargets" => {
                tables.insert(label, operands.split(',').map(str::trim).collect());
                continue;
            }
            "bra" | "bra.uni" => leads.push((last, vec![operands.trim()], goes_on)),
            "brx.idx" | "brx.idx.uni" => {
                let table = operands.rsplit(',').next().unwrap_or_default().trim();
                leads.push((last, tables.get(table).cloned().unwrap_or_default(), goes_on));
            }
            "ret" | "exit" => leads.push((last, Vec::new(), goes_on)),
            // A warp may be sent somewhere as a whole, and wait there for itself.
            barrier if barrier.starts_with("bar.sync") || barrier.starts_with("barrier.") => {
                kernel.blocks[last].waits = true;
                leads.push((last, Vec::new(), true));
            }
            _ => continue,
        }
        let condition = registers(predicate).next();
        kernel.blocks[last].condition = condition.map(str::to_owned).filter(|_| opcode.starts_with("bra"));
        kernel.blocks.push(Block::default());
    }
    for (block, targets, goes_on) in leads {
        let mut successors: Vec<usize> = targets
            .iter()
            .filter_map(|target| labels.get(target).copied())
            .collect();
        if goes_on {
            successors.push(block + 1);
        }
        kernel.blocks[block].successors = successors;
    }
    kernel.own = own(statements);
    kernel
}

/// The registers in a text.
fn registers(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    text.match_indices('%').map(move |(start, _)| {
        let rest = &text[start + 1..];
        &text[start..start + 1 + rest.find(|c| !is_name(c)).unwrap_or(rest.len())]
    })
}

/// Registers that depend on the number of the thread.
fn own(statements: &[String]) -> HashSet<String> {
    let results = statements.iter().filter_map(|statement| {
        let rest = statement.strip_prefix('@').map_or(statement.as_str(), |guarded| {
            guarded.split_once(char::is_whitespace).map_or("", |(_, rest)| rest)
        });
        let (opcode, operands) = rest.trim().split_once(char::is_whitespace)?;
        let is_one_of = |opcodes: &[&str]| opcodes.iter().any(|start| opcode.starts_with(start));
        let is_data = is_one_of(&OF_DATA) || [".f32", ".f16", ".bf16"].iter().any(|end| opcode.ends_with(end));
        if is_data || is_one_of(&WITHOUT_RESULT) {
            return None;
        }
        let end = match operands.strip_prefix('{') {
            Some(several) => several.find('}')? + 1,
            None => operands.find(',')?,
        };
        let (to, from) = operands.split_at(end);
        Some((registers(to).collect::<Vec<_>>(), registers(from).collect::<Vec<_>>()))
    });
    let results: Vec<_> = results.collect();
    let mut own: HashSet<String> = ["%tid.x", "%laneid"].map(str::to_owned).into();
    loop {
        let before = own.len();
        for (to, from) in &results {
            if from.iter().any(|register| own.contains(*register)) {
                own.extend(to.iter().map(|register| (*register).to_owned()));
            }
        }
        if own.len() == before {
            return own;
        }
    }
}

impl Kernel {
    /// The barriers that are the first behind the start of a block, by one way or another; beyond the last block, where none is.
    fn first(&self, start: usize) -> BTreeSet<usize> {
        let (mut seen, mut left, mut found) = (HashSet::new(), vec![start], BTreeSet::new());
        while let Some(block) = left.pop() {
            if !seen.insert(block) {
                continue;
            }
            match self.blocks.get(block) {
                Some(Block { waits: true, .. }) => _ = found.insert(block),
                Some(Block { successors, .. }) if !successors.is_empty() => left.extend(successors),
                _ => _ = found.insert(self.blocks.len()),
            }
        }
        found
    }

    fn apart(&self) -> Vec<String> {
        let branches = self.blocks.iter().filter_map(|block| {
            let condition = block
                .condition
                .as_ref()
                .filter(|condition| self.own.contains(*condition))?;
            let [one, other] = *block.successors.as_slice() else {
                return None;
            };
            (self.first(one) != self.first(other)).then(|| {
                format!(
                    "{}: threads that differ in {condition} go to different barriers",
                    self.name
                )
            })
        });
        branches.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::barriers;

    fn found(body: &str) -> Vec<String> {
        barriers(&format!(
            ".visible .entry k(\n\t.param .u64 p\n)\n.maxntid 512\n{{\n\t.reg .pred %p<9>;\n\tmov.u32 %r1, %tid.x;\n{body}\n\tret;\n}}\n"
        ))
    }

    #[test]
    fn arms_with_a_barrier_each_are_found() {
        let said = found(
            "\tld.param.b32 %r2, [p];\n\tsetp.lt.u32 %p1, %r1, %r2;\n\t@%p1 bra $L1;\n\tbar.sync 0;\n\tbra.uni $L2;\n$L1:\n\tbar.sync 0;\n\tst.shared.u32 [%r1], 1;\n$L2:",
        );
        assert_eq!(said, ["k: threads that differ in %p1 go to different barriers"]);
    }

    #[test]
    fn arms_that_meet_before_a_barrier_are_not() {
        let shared = "\tsetp.lt.u32 %p1, %r1, 5;\n\t@%p1 bra $L1;\n\tbra.uni $L2;\n$L1:\n\t{\n\t.reg .b16 half;\n\t@!%p1 st.shared.u32 [%r1], 1;\n}\n$L2:\n\tbar.sync 0;";
        assert_eq!(found(shared), [""; 0]);
    }

    #[test]
    fn conditions_that_all_threads_share_are_not() {
        let branch = "\t@%p1 bra $L1;\n\tbar.sync 0;\n\tbra.uni $L2;\n$L1:\n\tbar.sync 0;\n$L2:";
        for condition in [
            "\tld.param.b32 %r2, [p];\n\tsetp.eq.b32 %p1, %r2, 0;\n",
            "\tshfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\n\tsetp.eq.b32 %p1, %r2, 0;\n",
            "\tselp.b32 %r2, %r3, %r4, %p2;\n\tsetp.ge.f32 %p1, %r2, 0f00000000;\n",
        ] {
            assert_eq!(found(&format!("{condition}{branch}")), [""; 0], "{condition}");
        }
    }

    #[test]
    fn a_switch_leads_to_all_of_its_arms() {
        let body = "\tsetp.lt.u32 %p1, %r1, 5;\n\t@%p1 bra $L3;\n\t$T: .branchtargets\n\t\t$L1,\n\t\t$L2;\n\tbrx.idx %r9, $T;\n$L1:\n\tbar.sync 0;\n\tbra.uni $L3;\n$L2:\n\tbra.uni $L3;\n$L3:\n\tbar.sync 0;";
        assert_eq!(found(body).len(), 1);
    }

    #[test]
    fn no_module_has_any() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/isonorm-kernels/ptx");
        let mut modules = 0;
        for entry in std::fs::read_dir(folder).expect("the folder of modules") {
            let path = entry.expect("a file").path();
            let text = std::fs::read_to_string(&path).expect("text");
            assert_eq!(barriers(&text), [""; 0], "{}", path.display());
            modules += 1;
        }
        assert!(modules > 0);
    }
}
