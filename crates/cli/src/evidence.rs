//! `undertone evidence`: whether a file proves that a party told two stories.

use std::path::PathBuf;

use undertone_peer::Evidence;

use crate::{Failure, print};

#[derive(clap::Args)]
pub struct Arguments {
    /// A file conflict-*.json of a peer's results
    file: PathBuf,

    /// The study, to see that the key is that of the party
    #[arg(long)]
    study: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let place = arguments.file.display();
    let text = std::fs::read_to_string(&arguments.file)
        .map_err(|e| Failure::input(format!("{place}: cannot be read ({e}); give a file conflict-*.json")))?;
    let evidence = Evidence::read(&text)
        .map_err(|e| Failure::input(format!("{place}: {e}; give a file conflict-*.json as a peer wrote it")))?;
    let Evidence { author, id, round, .. } = &evidence;
    // Nobody signed what the file calls the party.
    let author = author.escape_debug().to_string();
    if let Some(path) = &arguments.study {
        let (study, _) = crate::study::resolve(&crate::study::document(path, &[])?)?;
        let stages = [Some(study.digest().whole()), study.moments().map(|stage| stage.digest().whole())];
        if !stages.contains(&Some(evidence.study)) {
            return Err(Failure::input(format!(
                "{place}: this is about another study than {}, whose hash is {}; ask for the study in which this happened",
                path.display(),
                hex::encode(&study.digest().whole()[..8])
            )));
        }
        let client = study.spec().clients.get(&evidence.author);
        if client.and_then(|client| client.id) != Some(*id) {
            return Err(Failure::input(format!(
                "{place}: {id} is not the key of \"{author}\" in {}; ask for the study in which this happened",
                path.display()
            )));
        }
    }
    if !evidence.is_proof() {
        return Err(Failure::machine(format!(
            "{place}: proves nothing to others: {author} is said to have released different things up to round {round}, but not both are signed with its key"
        )));
    }
    let who = match &arguments.study {
        Some(_) => author,
        None => format!("The party that the file calls \"{author}\", without proof of the name,"),
    };
    print(&format!(
        "{who} released different things to different peers.\n\n\
         The key {id} signed two different histories of the study {} up to round {round}. Both signatures are valid, and nobody else can make them.\n",
        hex::encode(&evidence.study[..8])
    ))
}
