use super::escape;

/// Numbers that a picture shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What the numbers are.
    pub caption: String,
    /// The columns' headings.
    pub head: Vec<String>,
    /// Cells; the first of a row is its heading.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(caption: impl Into<String>, head: &[&str]) -> Table {
        Table {
            caption: caption.into(),
            head: head.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
        }
    }

    /// As HTML.
    #[must_use]
    pub fn html(&self) -> String {
        let mut html = format!("<table>\n<caption>{}</caption>\n<thead><tr>", escape(&self.caption));
        for cell in &self.head {
            html += &format!("<th scope=\"col\">{}</th>", escape(cell));
        }
        html += "</tr></thead>\n<tbody>\n";
        for row in &self.rows {
            html += "<tr>";
            for (column, cell) in row.iter().enumerate() {
                html += &match column {
                    0 => format!("<th scope=\"row\">{}</th>", escape(cell)),
                    _ => format!("<td>{}</td>", escape(cell)),
                };
            }
            html += "</tr>\n";
        }
        html + "</tbody>\n</table>\n"
    }
}
