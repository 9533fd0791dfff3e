//! Writes the seeds of one target into a folder, one file each, for libFuzzer: `corpus TARGET FOLDER`.

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(target), Some(folder)) = (args.next(), args.next()) else {
        eprintln!("usage: corpus TARGET FOLDER");
        std::process::exit(2);
    };
    std::fs::create_dir_all(&folder)?;
    for (i, seed) in fuzz::seeds_of(&target).iter().enumerate() {
        std::fs::write(format!("{folder}/{i:04}"), seed)?;
    }
    Ok(())
}
