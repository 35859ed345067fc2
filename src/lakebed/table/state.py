"""One consistent state of a table: everything that planning needs, loaded on demand and cached."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property

import pyarrow as pa

from lakebed.errors import CorruptTableError, InvalidInputError, SnapshotExpiredError
from lakebed.format.avro.schema import arrow_schema
from lakebed.format.timeline.metadata import decode_commit
from lakebed.metadata import MetadataTable, Unusable, find_metadata_table
from lakebed.metadata.files import DataFiles, find_partition_files, list_metadata_files
from lakebed.model.config import TableConfig
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.index import IndexDefinition
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import META_COLUMNS, Action, State
from lakebed.storage import Storage
from lakebed.storage.cache import FileCache
from lakebed.table.definitions import load_definitions
from lakebed.timeline import Archive, Documents, Snapshot, Timeline
from lakebed.timeline.timeline import list_instants
from lakebed.view import latest_slices, list_data_files
from lakebed.view.slices import parse_data_files

Lister = Callable[[MetadataTable], DataFiles]
"""Lists all data files by partition path from the metadata table."""


class TableState:
    """A table as of a loaded timeline. It never changes."""

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        timeline: Timeline,
        documents: Documents,
        *,
        use_metadata: bool = True,
        cache: FileCache | None = None,
        metadata_timeline: Timeline | None = None,
        definitions: Mapping[str, IndexDefinition] | None = None,
        list_files: Lister = list_metadata_files,
    ) -> None:
        self.storage = storage
        self.config = config
        self.timeline = timeline
        self.documents = documents
        self.archive = Archive(storage, config)
        self._use_metadata = use_metadata
        self._cache = cache
        self._metadata_timeline = metadata_timeline
        self._cleaned_since: DataFiles = {}
        self._definitions = definitions
        self._list_files = list_files

    def with_definitions(self, definitions: Mapping[str, IndexDefinition]) -> TableState:
        """The same state with other index definitions than the stored ones."""
        return TableState(
            self.storage,
            self.config,
            self.timeline,
            self.documents,
            use_metadata=self._use_metadata,
            cache=self._cache,
            metadata_timeline=self._metadata_timeline,
            definitions=definitions,
            list_files=self._list_files,
        )

    def at(self, config: TableConfig, timeline: Timeline, metadata_timeline: Timeline | None = None) -> TableState:
        """The state with another config and timeline; the same object if nothing completed or changed.

        With the `metadata_timeline` nothing may have completed there either: an index that was dropped and built again
        since has other shards, and configuration and timeline need not show it.
        """
        is_same = timeline.completed() == self.timeline.completed() and config == self.config
        if is_same and (metadata_timeline is None or self._has_metadata_of(metadata_timeline)):
            return self
        return TableState(
            self.storage,
            config,
            timeline,
            self.documents,
            use_metadata=self._use_metadata,
            cache=self._cache,
            metadata_timeline=metadata_timeline,
            list_files=self._list_files,
        )

    def _has_metadata_of(self, timeline: Timeline) -> bool:
        metadata = self.metadata
        return isinstance(metadata, Unusable) or metadata.timeline.completed() == timeline.completed()

    def afresh(self, config: TableConfig, timeline: Timeline) -> TableState:
        """The table with its metadata table, whatever the options of reads say, and nothing that was cached."""
        return TableState(self.storage, config, timeline, self.documents, list_files=self._list_files)

    @cached_property
    def definitions(self) -> dict[str, IndexDefinition]:
        """Index definitions by metadata-table partition. CorruptTableError if they are lost or cannot be read."""
        if self._definitions is not None:
            return dict(self._definitions)
        return load_definitions(self.storage, self.config)

    @cached_property
    def metadata(self) -> MetadataTable | Unusable:
        """The metadata table, or why it is not used."""
        if not self._use_metadata:
            return Unusable("the option hoodie.metadata.enable=false disables it")
        return find_metadata_table(
            self.storage, self.config, self.timeline, self.definitions, self._cache, self._metadata_timeline
        )

    def metadata_with(self, definitions: Mapping[str, IndexDefinition]) -> MetadataTable:
        """The metadata table with these index definitions, for a table whose stored ones are lost or broken."""
        found = find_metadata_table(self.storage, self.config, self.timeline, definitions)
        if not isinstance(found, MetadataTable):
            raise CorruptTableError(found.reason, path=self.config.index_definitions_path)
        return found

    @cached_property
    def files(self) -> DataFiles:
        """All data files by partition path, of any instant."""
        if isinstance(self.metadata, MetadataTable):
            return self._list_files(self.metadata)
        files = list_data_files(self.storage)
        self._cleaned_since = self._find_cleaned()
        return files

    def _find_cleaned(self) -> DataFiles:
        """Files that cleans may have deleted after the timeline was loaded and before folders were listed."""
        found: dict[str, list[BaseFile | LogFile]] = {}
        known = {i.requested_at for i in self.timeline.completed() if i.action is Action.CLEAN}
        begun = {
            i.requested_at
            for i in list_instants(self.storage, self.config)
            if i.action is Action.CLEAN and i.state is not State.REQUESTED
        }
        for clean in sorted(begun - known):
            for partition, names in self.documents.planned_files(clean).items():
                found.setdefault(partition, []).extend(parse_data_files(dict.fromkeys(names, 0), partition))
        return {partition: tuple(files) for partition, files in found.items()}

    @cached_property
    def latest(self) -> Snapshot:
        """The newest snapshot."""
        return Snapshot(self.timeline, self.archive)

    def snapshot_at(self, completed_at: InstantTime) -> Snapshot:
        """The snapshot as of a completion time."""
        return Snapshot(self.timeline, self.archive, completed_at)

    @cached_property
    def latest_slices(self) -> tuple[FileSlice, ...]:
        """The file slices of the newest snapshot."""
        return self.slices(self.latest)

    def find_slice(self, group: FileGroupId) -> FileSlice | None:
        """The file slice of one file group in the newest snapshot; lists only the files of its partition."""
        if "latest_slices" in self.__dict__ or not isinstance(self.metadata, MetadataTable):
            return next((file_slice for file_slice in self.latest_slices if file_slice.group == group), None)
        if group.partition not in self._partition_files:
            self._partition_files[group.partition] = find_partition_files(self.metadata, group.partition)
        names = {n: size for n, size in self._partition_files[group.partition].items() if group.file_id in n}
        files = [file for file in parse_data_files(names, group.partition) if file.file_id == group.file_id]
        self.latest.prefetch(file.instant for file in files)
        layout = self.config.timeline_layout
        found = latest_slices(
            {group.partition: files}, self.latest.completion_of, layout=layout, replaced=self._replaced_now
        )
        return found[0] if found else None

    @cached_property
    def _partition_files(self) -> dict[str, dict[str, int]]:
        return {}

    @cached_property
    def _replaced_now(self) -> frozenset[FileGroupId]:
        return self.replaced(self.latest)

    def slices(self, snapshot: Snapshot) -> tuple[FileSlice, ...]:
        """The newest file slice of every file group that a snapshot sees."""
        snapshot.prefetch(file.instant for files in self.files.values() for file in files)
        if isinstance(self.metadata, MetadataTable):
            return self._latest_slices(self.files, snapshot)
        slices = self._latest_slices(self._without_strays(snapshot), snapshot)
        self._check_listed(snapshot, slices)
        return slices

    def _latest_slices(self, files: DataFiles, snapshot: Snapshot) -> tuple[FileSlice, ...]:
        return latest_slices(
            files, snapshot.completion_of, layout=self.config.timeline_layout, replaced=self.replaced(snapshot)
        )

    def _check_listed(self, snapshot: Snapshot, slices: tuple[FileSlice, ...]) -> None:
        """Raises SnapshotExpiredError if a file of the snapshot was cleaned before its folder was listed."""
        if not self._cleaned_since:
            return
        cleaned = {
            partition: (*self.files.get(partition, ()), *files) for partition, files in self._cleaned_since.items()
        }
        seen = {path for file_slice in slices for path in file_slice.paths}
        needed = {path for file_slice in self._latest_slices(cleaned, snapshot) for path in file_slice.paths}
        if needed - seen:
            raise SnapshotExpiredError(
                f"{self.storage.url}: {min(needed - seen)} was cleaned while the table was being read",
                hint="read again",
            )

    def replaced(self, snapshot: Snapshot) -> frozenset[FileGroupId]:
        """File groups replaced in a snapshot."""
        found: set[FileGroupId] = set()
        for instant in snapshot.timeline.commits():
            if instant.action is Action.REPLACE_COMMIT:
                for partition, file_ids in self.documents.commit(instant).replaced_file_ids.items():
                    found.update(FileGroupId(partition, file_id) for file_id in file_ids)
        return frozenset(found)

    def schema(self, snapshot: Snapshot) -> pa.Schema:
        """The table's columns in the newest commit of the snapshot, after meta columns if it has them."""
        columns = list(self.data_schema(snapshot))
        meta = [pa.field(name, pa.string()) for name in META_COLUMNS] if self.config.has_meta_columns else []
        return pa.schema([*meta, *columns, *self._dropped_columns(columns)])

    def data_schema(self, snapshot: Snapshot) -> pa.Schema:
        """The table's columns in the newest commit of the snapshot, without meta columns."""
        declared, path = self._declared_schema(snapshot)
        return pa.schema([field for field in arrow_schema(declared, path=path) if field.name not in META_COLUMNS])

    def _dropped_columns(self, columns: list[pa.Field]) -> list[pa.Field]:
        """Partition columns that are stored only in paths; as text, because their type is not recorded."""
        if not self.config.drops_partition_columns:
            return []
        known = {field.name for field in columns}
        return [pa.field(name, pa.string()) for name in self.config.partition_fields if name not in known]

    def _declared_schema(self, snapshot: Snapshot) -> tuple[str, str]:
        for instant in reversed(snapshot.timeline.commits()):
            declared = self.documents.commit(instant).schema_json
            if declared:
                return declared, self.documents.path(instant)
        if self.config.create_schema:
            return self.config.create_schema, self.config.path
        if not len(self.timeline):
            raise InvalidInputError(
                f"table {self.config.name} has no commits, so it has no schema yet", hint="write to it first"
            )
        return self._archived_schema(snapshot)

    def _archived_schema(self, snapshot: Snapshot) -> tuple[str, str]:
        for archived in reversed(self.archive.instants()):
            instant, path = archived.instant, f"{self.config.history_path}/{archived.instant.requested_at}"
            if instant.action.changes_data and archived.metadata and snapshot.completion_of(instant.requested_at):
                declared = decode_commit(archived.metadata, path=path).schema_json
                if declared:
                    return declared, path
        raise CorruptTableError("no commit declares the table's schema", path=self.config.timeline_path)

    def _without_strays(self, snapshot: Snapshot) -> DataFiles:
        """Files by partition, without stray files of tasks that ran twice or too late.

        If an instant has several files in a group, only those that its commit names are kept. For a replace commit only
        named files are: a clustering that is executed again creates new groups, while a stale first attempt may still
        write files.
        """
        named = {
            instant.requested_at: {stat.path for stat in self.documents.commit(instant).stats}
            for instant in snapshot.timeline.commits()
            if instant.action is Action.REPLACE_COMMIT
        }
        return {
            partition: self._named_by_commits(
                snapshot, partition, (file for file in files if _is_named(named, partition, file))
            )
            for partition, files in self.files.items()
        }

    def _named_by_commits(
        self, snapshot: Snapshot, partition: str, files: Iterable[BaseFile | LogFile]
    ) -> tuple[BaseFile | LogFile, ...]:
        rivals: dict[tuple[object, ...], list[BaseFile | LogFile]] = {}
        for file in files:
            version = file.version if isinstance(file, LogFile) else None
            is_cdc = isinstance(file, LogFile) and file.is_cdc
            rivals.setdefault((file.file_id, file.instant, version, is_cdc), []).append(file)
        kept: list[BaseFile | LogFile] = []
        for group in rivals.values():
            kept += group if len(group) == 1 else self._choose(snapshot, partition, group)
        return tuple(kept)

    def _choose(self, snapshot: Snapshot, partition: str, rivals: list[BaseFile | LogFile]) -> list[BaseFile | LogFile]:
        commit = self._find_commit(snapshot, rivals[0].instant)
        if commit is None:
            return rivals
        stats = self.documents.commit(commit).write_stats.get(partition, ())
        named = {stat.path.rpartition("/")[2] for stat in stats}
        return [file for file in rivals if file.name in named] or rivals

    def _find_commit(self, snapshot: Snapshot, requested_at: InstantTime) -> Instant | None:
        return next((i for i in snapshot.timeline.commits() if i.requested_at == requested_at), None)


def _is_named(named: Mapping[InstantTime, Collection[str]], partition: str, file: BaseFile | LogFile) -> bool:
    """Whether a file is named by its commit, for those commits that name all their files."""
    return file.instant not in named or "/".join(filter(None, (partition, file.name))) in named[file.instant]
