//! A transformation for the comparison with GDAL: the pixels as raw values of this machine, band after band,
//! and the grid as JSON on standard output. If OUT ends with `.tif`, it becomes a COG, by the options of the
//! writer: this is what `benches/raster/run --example` measures.
//!
//!     transform warp IN OUT EPSG RESAMPLING TOLERANCE [KEY=VALUE …]
//!     transform rasterize IN OUT VALUE [touched] [count] extent=…  size=W,H
//!     transform clip IN OUT SHAPES [touched] [crop]
//!
//! Options of the writer: compress=CODEC effort=N threads=N overviews=N
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for developers")]

use std::path::Path;
use std::sync::Arc;

use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::{Crs, format};
use tidegate_raster::{
    Affine, ClipExtent, ClipShapes, CogOptions, FileBytes, GeoTiff, GridRequest, KernelScale, NoData,
    Painted, Painter, PixelWindow, RasterClip, RasterGrid, RasterLimits, RasterSpec, Rasterize,
    RasterizeOptions, SampleType, Samples, Warp, WarpOptions, paint_file,
};

fn numbers(text: &str) -> Vec<f64> {
    text.split(',').map(|n| n.parse().unwrap()).collect()
}

fn open(path: &str) -> GeoTiff {
    GeoTiff::open(Arc::new(FileBytes::open(Path::new(path)).unwrap()), &RasterLimits::default()).unwrap()
}

fn write(painter: &dyn Painter, spec: &RasterSpec, path: &str, options: &CogOptions) {
    if path.ends_with(".tif") {
        paint_file(painter, spec, Path::new(path), options, &|| Ok(())).unwrap();
        return;
    }
    let grid = &spec.grid;
    let (width, pixels) = (grid.width as usize, grid.width as usize * grid.height as usize);
    let mut all = Samples::zeros(spec.sample, grid.width, grid.height, spec.bands);
    if let Some(nodata) = &spec.nodata {
        all.data.fill(nodata);
    }
    let size = spec.sample.size();
    for y in (0..grid.height).step_by(512) {
        for x in (0..grid.width).step_by(512) {
            let window = grid.window().intersection(&PixelWindow::new(x, y, 512, 512)).unwrap();
            let tile = match painter.paint(window).unwrap() {
                Painted::Empty => continue,
                Painted::Values(tile) | Painted::Masked(tile, _) | Painted::Packed(_, tile) => tile,
            };
            let (line, bytes) = (window.width as usize * size, tile.data.bytes());
            for band in 0..spec.bands as usize {
                for row in 0..window.height as usize {
                    let from = (band * window.height as usize + row) * line;
                    let to = (band * pixels + (y as usize + row) * width + x as usize) * size;
                    all.data.bytes_mut()[to..to + line].copy_from_slice(&bytes[from..from + line]);
                }
            }
        }
    }
    std::fs::write(path, all.data.bytes()).unwrap();
    let [a, b, c, d, e, f] = grid.transform.0;
    println!(
        "{{\"width\":{},\"height\":{},\"bands\":{},\"sample\":\"{}\",\"transform\":[{a},{b},{c},{d},{e},{f}]}}",
        grid.width, grid.height, spec.bands, spec.sample
    );
}

fn shapes(path: &str, mut add: impl FnMut(&[u8])) {
    let mut reader = format::open(Path::new(path), &ReadOptions::default()).unwrap();
    while let Some(batch) = reader.next_batch(&mut Vec::new()).unwrap() {
        (0..batch.len()).filter_map(|row| batch.geometry(row)).for_each(&mut add);
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| args.iter().any(|arg| arg == word);
    let given = |name: &str| args.iter().find_map(|arg| arg.strip_prefix(&format!("{name}=")));
    let extent = given("extent").map(|text| {
        let n = numbers(text);
        [n[0], n[1], n[2], n[3]]
    });
    let pair = |name: &str| given(name).map(|text| (numbers(text)[0], numbers(text)[1]));
    let count = |name: &str| given(name).map(|text| text.parse::<u32>().unwrap());
    let mut cog = CogOptions {
        compression: given("compress").unwrap_or("deflate").parse().unwrap(),
        threads: count("threads").unwrap_or(1) as usize,
        overviews: count("overviews"),
        effort: count("effort").map(|effort| effort as i32),
        ..CogOptions::default()
    };
    match args[0].as_str() {
        "warp" => {
            let source = open(&args[1]);
            let options = WarpOptions {
                to: Some(Crs::epsg(args[3].parse().unwrap())),
                resampling: args[4].parse().unwrap(),
                tolerance: args[5].parse().unwrap(),
                grid: GridRequest {
                    extent,
                    size: pair("size").map(|(w, h)| (w as u32, h as u32)),
                    resolution: pair("resolution"),
                    aligned: has("aligned"),
                },
                kernel_scale: pair("scale").map(|(x, y)| KernelScale { x, y }),
                nodata: given("nodata").map(|text| text.parse::<NoData>().unwrap()),
                ..WarpOptions::default()
            };
            let start = std::time::Instant::now();
            let warp = Warp::new(&source, &options).unwrap();
            write(&warp, warp.spec(), &args[2], &cog);
            eprint_scale(&warp, start);
        }
        "rasterize" => {
            let (extent, size) = (extent.unwrap(), pair("size").unwrap());
            let transform = Affine([
                extent[0],
                (extent[2] - extent[0]) / size.0,
                0.0,
                extent[3],
                0.0,
                -(extent[3] - extent[1]) / size.1,
            ]);
            let mut made = Rasterize::new(RasterizeOptions {
                grid: RasterGrid { width: size.0 as u32, height: size.1 as u32, transform, crs: None },
                sample: SampleType::U8,
                init: 0.0,
                nodata: None,
                all_touched: has("touched"),
                count: has("count"),
            })
            .unwrap();
            shapes(&args[1], |wkb| assert!(made.add(wkb, args[3].parse().unwrap(), None).unwrap()));
            write(&made, &made.spec(), &args[2], &cog);
        }
        _ => {
            let source = open(&args[1]);
            let mut by = ClipShapes::new(&source, has("touched")).unwrap();
            shapes(&args[3], |wkb| assert!(by.add(wkb, None).unwrap()));
            let extent = if has("crop") { ClipExtent::Crop } else { ClipExtent::Keep };
            let mut clip = RasterClip::new(&source, None, Some(by), extent, None).unwrap();
            cog = clip.options(&cog);
            clip.prepare(&cog);
            write(&clip, clip.spec(), &args[2], &cog);
        }
    }
}

#[allow(clippy::print_stderr, reason = "a tool for developers")]
fn eprint_scale(warp: &Warp<'_>, start: std::time::Instant) {
    eprintln!("{:?} {:?}", warp.kernel_scale(), start.elapsed());
}
