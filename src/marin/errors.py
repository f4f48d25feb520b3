"""Every error that Marin raises on purpose, one class per reason.

::

    MarinError
    ├── DescriptionError            the pipeline as written is wrong; nothing has run
    │   ├── InvalidNameError
    │   ├── InvalidVersionError
    │   ├── InvalidPrefixError
    │   ├── InvalidResourcesError
    │   ├── ConfigurationError          a value that a helper or a step can't work with
    │   ├── PlaceholderError            build_config computed with a value known only at run time
    │   ├── UndeclaredDependencyError
    │   ├── UndeclaredRuntimeArgumentError
    │   ├── InputsError                 inputs of apply that the function can't be called with
    │   ├── FingerprintError            a config value without a stable encoding
    │   ├── FingerprintMismatchError    expected_fingerprint does not hold
    │   ├── ImpureConfigError           build_config gave two different answers
    │   ├── UnpicklableStepError        a remote step that can't travel to its process
    │   ├── UnusedOverrideError
    │   └── GraphError
    │       ├── CycleError
    │       ├── ConflictingRecipesError  two recipes for one name@version
    │       ├── MutableDependencyError   a fixed version on a dev one
    │       └── NestedArtifactError      one artifact's address inside another's
    ├── StoreError                  what lies in the store is wrong, absent or in the way
    │   ├── NotBuiltError
    │   │   └── LeftOutError            by --only, which builds what it names and nothing else
    │   ├── RecordError
    │   │   ├── CorruptRecordError
    │   │   └── NewerRecordError
    │   ├── ArtifactTypeError           the record holds another type than the handle asks for
    │   ├── AddressOccupiedError        files without a record, or a file where a folder should be
    │   ├── SourceMissingError          an adopted or pinned source that is not there
    │   ├── StorageFullError
    │   ├── StoreReadOnlyError
    │   ├── StoreBusyError              another process holds the folder's lock and does not let go
    │   ├── StoreFormatError            a store made by a newer Marin
    │   └── DependentsError             removing it would leave others without their input
    ├── StepError                   one step failed
    │   ├── WorkerDiedError             its process ended without an answer
    │   ├── OutputError                 it returned, but what it made is not what it declared
    │   ├── StepInterruptedError        it was told to stop before it was done
    │   ├── StepStoppedError            somebody stopped this one step, with 'marin stop'
    │   ├── StepTimeoutError            it ran for longer than its timeout
    │   └── LeaseLostError              it was silent for longer than its lease
    ├── RefusedError                several steps can't be run as they are; lists them all, nothing has run
    ├── RunError                    a run ended with failed steps; lists them all
    ├── DataError                   input data that can't be used
    │   ├── HubUnreachableError         the hub gave no answer, or may not be asked
    │   └── BadRecordError              one record of an input file, with file, line and byte
    ├── DocumentFunctionError       a function of yours failed on one document, which the message names
    ├── TokenizerMismatchError
    ├── DeviceNotFoundError
    ├── NotEnoughResourcesError     a step asks for more than the machine, or the disk, has
    ├── OutOfMemoryError            a training needs more memory than its device, or the machine, has
    ├── NonFiniteLossError
    ├── HostLostError               another host of a training failed, ended, or is silent
    └── CheckpointError
        └── NewerCheckpointError    a checkpoint of a newer Marin: never overwritten

``RunInterrupted`` stands apart: ``except Exception`` does not swallow it, as it is a ``KeyboardInterrupt`` and a
``SystemExit``.

A little over 300 lines: the tree is one table.
"""

from __future__ import annotations


class MarinError(Exception):
    """Base of every error that Marin raises on purpose."""


class DescriptionError(MarinError):
    """The pipeline as it is written can't be run."""


class InvalidNameError(DescriptionError, ValueError):
    """An artifact name that can't be an address."""


class InvalidVersionError(DescriptionError, ValueError):
    """A version that is neither a date version nor a mutable one."""


class InvalidPrefixError(DescriptionError, ValueError):
    """A store prefix that can't be used."""


class InvalidResourcesError(DescriptionError, ValueError):
    """Resources that can't be understood."""


class ConfigurationError(DescriptionError, ValueError):
    """A value that a helper or a step can't work with."""


class PlaceholderError(DescriptionError, TypeError):
    """``build_config`` computed with a value that is known only when the step runs."""


class UndeclaredDependencyError(DescriptionError):
    """``build_config`` read a step that is not among its dependencies."""


class UndeclaredRuntimeArgumentError(DescriptionError):
    """``build_config`` read a runtime argument that was not declared."""


class InputsError(DescriptionError, TypeError):
    """Inputs given to ``apply`` that its function can't be called with, or that can't be passed on."""


class FingerprintError(DescriptionError, TypeError):
    """A value of the recipe has no encoding that is the same in every process."""


class FingerprintMismatchError(DescriptionError):
    """``expected_fingerprint`` does not hold for the recipe or for the record."""


class ImpureConfigError(DescriptionError):
    """``build_config`` gave two different configs when called twice."""


class UnpicklableStepError(DescriptionError, TypeError):
    """A step that runs in another process, but whose function or config can't be sent there."""


class UnusedOverrideError(DescriptionError):
    """A version override that no handle of the experiment used."""


class GraphError(DescriptionError):
    """The handles do not form a graph that can be run."""


class CycleError(GraphError):
    """Steps that depend on each other in a circle."""


class ConflictingRecipesError(GraphError):
    """Two different recipes for one name and version."""


class MutableDependencyError(GraphError):
    """A fixed version that depends on a mutable one."""


class NestedArtifactError(GraphError):
    """An artifact whose address lies inside another artifact's address."""


class StoreError(MarinError):
    """What lies in the store is wrong, absent or in the way."""


class NotBuiltError(StoreError):
    """The artifact was asked for, and has not been built."""


class LeftOutError(NotBuiltError):
    """``run`` has built what ``only`` names, and can't return a handle that was left out and is not built."""


class RecordError(StoreError):
    """A record that can't be used."""


class CorruptRecordError(RecordError):
    """A record that is torn, or was not written by Marin."""


class NewerRecordError(RecordError):
    """A record written by a newer Marin."""


class ArtifactTypeError(StoreError, TypeError):
    """The record holds another artifact type than the one asked for."""


class AddressOccupiedError(StoreError):
    """Something that is not this artifact lies at its address."""


class SourceMissingError(StoreError):
    """The source of an adopted or pinned artifact is not there."""


class StorageFullError(StoreError):
    """No space left in the store."""


class StoreReadOnlyError(StoreError):
    """The store can't be written."""


class StoreBusyError(StoreError):
    """Another process holds the lock of a folder and does not let go."""


class StoreFormatError(StoreError):
    """The store has a format that this Marin does not know."""


class DependentsError(StoreError):
    """Other artifacts were made from the one to be removed."""


class StepError(MarinError):
    """One step failed."""


class WorkerDiedError(StepError):
    """The process of a step ended without an answer."""


class OutputError(StepError):
    """The step returned, but what it made is not what it declared."""


class StepInterruptedError(StepError):
    """The step was told to stop before it was done."""


class StepStoppedError(StepError):
    """Somebody stopped this one step with ``marin stop``; the run went on."""


class StepTimeoutError(StepError):
    """The step ran for longer than its ``timeout``."""


class LeaseLostError(StepError):
    """The builder was silent for longer than its lease; somebody else builds the artifact now."""


class RefusedError(MarinError):
    """Several steps can't be run as they are, and nothing has run. The message lists all of them."""


class RunError(MarinError):
    """A run ended with failed steps. The message lists all of them."""


class RunInterrupted(KeyboardInterrupt, SystemExit):
    """The run was stopped by SIGINT or SIGTERM. A script that lets it pass ends with ``exit_code``, 130 or 143."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = exit_code


class DataError(MarinError):
    """Input data that can't be used."""


class HubUnreachableError(DataError):
    """The Hugging Face hub gave no answer, or ``HF_HUB_OFFLINE`` forbids to ask it."""


class BadRecordError(DataError):
    """One record of an input file that can't be read. The message has file, line and byte."""


class DocumentFunctionError(MarinError):
    """A function given to ``filtered`` failed on one document. The message has its id and where it was read.

    ``reason`` is what such documents are counted under.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message, reason)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


class TokenizerMismatchError(MarinError):
    """Token caches made by different tokenizers, or by another one than is asked for."""


class DeviceNotFoundError(MarinError):
    """The device that was asked for is not in this machine."""


class NotEnoughResourcesError(MarinError):
    """A step asks for more than the machine has, or for more room than is free on the disk."""


class OutOfMemoryError(MarinError):
    """A training needs more memory than its device, or the machine, has. The message has the largest buffers."""


class NonFiniteLossError(MarinError):
    """The loss or a gradient became infinite or NaN."""


class HostLostError(MarinError):
    """Another host of a training failed or ended, or can't be reached: none can go on without it."""


class CheckpointError(MarinError):
    """A checkpoint that can't be written, read or continued."""


class NewerCheckpointError(CheckpointError):
    """A checkpoint written by a newer Marin."""
