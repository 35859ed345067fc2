"""Avro: schemas to and from Arrow, datums to and from columns, object container files."""
