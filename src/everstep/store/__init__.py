"""Places for objects behind one interface: local disk, memory, clouds, and wrappers around them."""

from everstep.store.count import Count
from everstep.store.fault import AtRandom, Crashed, Fault, Injection, Kind, Script, Scripted
from everstep.store.keys import check_key, check_prefix
from everstep.store.limit import Limit
from everstep.store.local import LocalStore
from everstep.store.memory import MemoryStore
from everstep.store.opening import open_store
from everstep.store.protocol import Body, Listed, Store
from everstep.store.retry import Retry, RetryPolicy

__all__ = [
    "AtRandom",
    "Body",
    "Count",
    "Crashed",
    "Fault",
    "Injection",
    "Kind",
    "Limit",
    "Listed",
    "LocalStore",
    "MemoryStore",
    "Retry",
    "RetryPolicy",
    "Script",
    "Scripted",
    "Store",
    "check_key",
    "check_prefix",
    "open_store",
]
