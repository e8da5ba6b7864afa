//! The formats by their words, as options name them.

use clap::ValueEnum;
use tidegate_geo::format::Format;

/// A format in an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    Gpkg,
    Geojson,
    Geojsonl,
    Geojsons,
    Csv,
    Fgb,
    Parquet,
    Shp,
    Gml,
    Esrijson,
}

impl FormatArg {
    /// The format that it means.
    pub(crate) fn format(self) -> Format {
        match self {
            FormatArg::Gpkg => Format::GeoPackage,
            FormatArg::Geojson => Format::GeoJson,
            FormatArg::Geojsonl => Format::GeoJsonLines,
            FormatArg::Geojsons => Format::GeoJsonSeq,
            FormatArg::Csv => Format::Csv,
            FormatArg::Fgb => Format::FlatGeobuf,
            FormatArg::Parquet => Format::GeoParquet,
            FormatArg::Shp => Format::Shapefile,
            FormatArg::Gml => Format::Gml,
            FormatArg::Esrijson => Format::EsriJson,
        }
    }
}
