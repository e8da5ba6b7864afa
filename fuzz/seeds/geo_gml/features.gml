<?xml version="1.0" encoding="UTF-8"?>
<app:FeatureCollection gml:id="features" xmlns:app="urn:tidegate:features" xmlns:gml="http://www.opengis.net/gml/3.2">
<app:featureMember>
<app:features gml:id="features.1">
<app:geometry><gml:MultiSurface gml:id="features.1.g0" srsName="urn:ogc:def:crs:OGC:1.3:CRS84"><gml:surfaceMember><gml:Polygon gml:id="features.1.g1"><gml:exterior><gml:LinearRing><gml:posList>16 48 17 48 17 49 16 48</gml:posList></gml:LinearRing></gml:exterior></gml:Polygon></gml:surfaceMember><gml:surfaceMember><gml:Polygon gml:id="features.1.g2"><gml:exterior><gml:LinearRing><gml:posList>1 1 9 1 9 9 1 1</gml:posList></gml:LinearRing></gml:exterior><gml:interior><gml:LinearRing><gml:posList>4 2 5 3 5 2 4 2</gml:posList></gml:LinearRing></gml:interior></gml:Polygon></gml:surfaceMember></gml:MultiSurface></app:geometry>
<app:n>1</app:n>
<app:x>0.5</app:x>
<app:name>Wien</app:name>
<app:day>2026-11-15</app:day>
<app:at>2026-11-15T12:00:00Z</app:at>
<app:yes>true</app:yes>
<app:more>{"a":[1,null]}</app:more>
</app:features>
</app:featureMember>
<app:featureMember>
<app:features gml:id="features.2">
<app:geometry><gml:MultiSurface gml:id="features.2.g0" srsName="urn:ogc:def:crs:OGC:1.3:CRS84"><gml:surfaceMember><gml:Polygon gml:id="features.2.g1"><gml:exterior><gml:LinearRing><gml:posList>15 47 16 48 16 47 15 48 15 47</gml:posList></gml:LinearRing></gml:exterior></gml:Polygon></gml:surfaceMember></gml:MultiSurface></app:geometry>
<app:n>-2</app:n>
<app:name>Gräz</app:name>
</app:features>
</app:featureMember>
<app:featureMember>
<app:features gml:id="features.3">
</app:features>
</app:featureMember>
</app:FeatureCollection>
