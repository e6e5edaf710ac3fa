//! Converts recorded training traces to programs: `convert_trace OUT_FOLDER TRACE.train.jsonl.gz...`

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("the folder to write to is missing")?;
    for path in arguments {
        let reader = BufReader::new(flate2::bufread::MultiGzDecoder::new(BufReader::new(File::open(
            &path,
        )?)));
        let (program, report) = workloads::import::train_trace::convert(reader, &path)?;
        let name = Path::new(&path)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .replace(".train.jsonl.gz", "");
        let out = File::create(Path::new(&folder).join(format!("{name}.uvmprog.zst")))?;
        let mut out = BufWriter::new(zstd::stream::write::Encoder::new(out, 19)?.auto_finish());
        workloads::program::write(&program, &mut out)?;
        out.flush()?;
        println!("{name}: {} iterations, {report:?}", program.iterations.len());
    }
    Ok(())
}
