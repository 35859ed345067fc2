from __future__ import annotations

import pytest

from lakebed.model.config import KeyGenerator, TableConfig, find_key_generator, names_key_fields

BASE = {"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE", "hoodie.table.version": "9"}


def config(**properties: str) -> TableConfig:
    return TableConfig(
        {**BASE, **{f"hoodie.table.{key.replace('_', '.')}": value for key, value in properties.items()}}
    )


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"keygenerator_type": "SIMPLE"}, KeyGenerator.SIMPLE),
        ({"keygenerator_type": "COMPLEX_AVRO"}, KeyGenerator.COMPLEX),
        ({"keygenerator_type": "TIMESTAMP"}, KeyGenerator.TIMESTAMP),
        ({"keygenerator_type": "CUSTOM"}, None),
        ({"keygenerator_type": "USER_PROVIDED"}, None),
        ({"keygenerator_class": "org.apache.hudi.keygen.SimpleKeyGenerator"}, KeyGenerator.SIMPLE),
        ({"keygenerator_class": "org.apache.hudi.keygen.ComplexAvroKeyGenerator"}, KeyGenerator.COMPLEX),
        ({"keygenerator_class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator"}, KeyGenerator.NON_PARTITION),
        ({"keygenerator_class": "org.apache.hudi.keygen.TimestampBasedAvroKeyGenerator"}, KeyGenerator.TIMESTAMP),
        ({"keygenerator_class": "com.example.Mine"}, None),
        ({"recordkey_fields": "a"}, KeyGenerator.NON_PARTITION),
        ({"recordkey_fields": "a", "partition_fields": "p"}, KeyGenerator.SIMPLE),
        ({"recordkey_fields": "a,b", "partition_fields": "p"}, KeyGenerator.COMPLEX),
        ({"recordkey_fields": "a", "partition_fields": "p,q"}, KeyGenerator.COMPLEX),
        ({"recordkey_fields": "a", "partition_fields": "p:TIMESTAMP"}, None),
    ],
)
def test_key_generators_by_type_class_or_fields(properties: dict[str, str], expected: KeyGenerator | None) -> None:
    assert find_key_generator(config(**properties)) is expected


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"keygenerator_type": "SIMPLE", "recordkey_fields": "a"}, False),
        ({"keygenerator_type": "NON_PARTITION", "recordkey_fields": "a"}, False),
        ({"keygenerator_type": "NON_PARTITION", "recordkey_fields": "a,b"}, True),
        ({"keygenerator_type": "COMPLEX", "recordkey_fields": "a"}, True),
        ({"keygenerator_type": "COMPLEX", "recordkey_fields": "a", "version": "8"}, None),
        ({"keygenerator_type": "COMPLEX", "recordkey_fields": "a", "complex_keygen_encoding": "VALUE_ONLY"}, False),
        (
            {
                "keygenerator_type": "COMPLEX",
                "recordkey_fields": "a",
                "version": "8",
                "complex_keygen_encoding": "field_prefixed",
            },
            True,
        ),
    ],
)
def test_whether_keys_name_their_fields(properties: dict[str, str], expected: bool | None) -> None:
    assert names_key_fields(config(**properties)) is expected
