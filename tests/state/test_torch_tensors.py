"""torch tensors: every element type and layout, in place and anew."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import RestoreMismatch, UnsupportedLeaf
from everstep.state import flatten, match
from tests.state.moving import fill, loaded, restored, saved

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf")

PLAIN = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
    torch.complex128, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu, torch.float4_e2m1fn_x2,
]  # fmt: skip


def random_bits(shape, dtype, seed=0):
    """A contiguous tensor with any bits at all, NaN payloads among them; bools are 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    item = torch.empty(0, dtype=dtype).element_size()
    count = 1
    for n in shape:
        count *= n
    high = 2 if dtype == torch.bool else 256
    raw = torch.randint(0, high, (count * item,), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).view(shape) if count else torch.empty(shape, dtype=dtype)


def zeros(shape, dtype):
    """A contiguous tensor of zero bits; not every type can be filled with a number."""
    made = torch.empty(tuple(shape), dtype=dtype)
    if made.numel():
        made.view(-1).view(torch.uint8).zero_()
    return made


def bits(tensor):
    """The bytes of a tensor's elements in order."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    wide = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
    raw = torch.empty(tensor.shape, dtype=wide[tensor.element_size()]).copy_(
        tensor.view(wide[tensor.element_size()])
    )
    return bytes(raw.reshape(-1).view(torch.uint8).numpy()) if raw.numel() else b""


def same(one, other):
    """Bit-equal, of one shape and type."""
    return one.shape == other.shape and one.dtype == other.dtype and bits(one) == bits(other)


@st.composite
def tensors(draw):
    """A tensor of any type and shape, cut, turned and spread in memory."""
    dtype = draw(st.sampled_from(PLAIN))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    made = random_bits(shape, dtype, draw(st.integers(0, 1000)))
    for _ in range(draw(st.integers(0, 3))):
        if made.ndim == 0:
            break
        axis = draw(st.integers(0, made.ndim - 1))
        how = draw(st.sampled_from(["step", "cut", "turn", "spread"]))
        if how == "step":
            made = made[(slice(None),) * axis + (slice(None, None, 2),)]
        elif how == "cut" and made.shape[axis]:
            made = made.narrow(axis, 1 if made.shape[axis] > 1 else 0, 1)
        elif how == "turn":
            made = made.transpose(0, axis)
        else:
            made = made.unsqueeze(axis).expand(*made.shape[:axis], 3, *made.shape[axis:])
    return made


@settings(max_examples=150, deadline=None)
@given(tensor=tensors(), by_copy=st.booleans())
def test_any_tensor_comes_back_bit_for_bit(tensor, by_copy):
    """A tensor of any type, shape and strides is the same bits after a load, by either way of the bytes."""
    made = loaded({"t": tensor}, by_copy=by_copy)["t"]
    assert same(made, tensor)


@settings(max_examples=150, deadline=None)
@given(tensor=tensors(), by_copy=st.booleans(), contiguous=st.booleans())
def test_any_tensor_is_filled_in_place(tensor, by_copy, contiguous):
    """A live tensor takes the saved bits in its own memory, whatever its strides are and the saved one's were."""
    live = zeros(tensor.shape, tensor.dtype)
    if not contiguous and tensor.ndim > 1:
        live = zeros(tuple(reversed(tensor.shape)), tensor.dtype).permute(*reversed(range(tensor.ndim)))
    state = {"t": live}
    address = live.data_ptr()
    restored({"t": tensor}, state, by_copy=by_copy)
    assert state["t"] is live
    assert live.data_ptr() == address
    assert same(live, tensor)


@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_a_contiguous_cpu_tensor_is_moved_without_a_copy(dtype):
    """The source's and the target's memory are the tensor's own."""
    source, live = random_bits((3, 5), dtype), zeros((3, 5), dtype)
    flat = flatten({"t": source})
    (piece,) = flat.pieces
    (wanted,) = match({"t": live}, flat.entries).wanted
    wanted.target.view()[:] = piece.source.view()
    assert same(live, source)
    assert piece.nbytes == source.numel() * source.element_size()


@pytest.mark.parametrize(
    "make", [torch.conj, lambda t: t.conj().imag, lambda t: t.conj().T], ids=["conj", "neg", "turn"]
)
def test_conjugate_and_negative_views_are_saved_by_their_values(make):
    """A lazy conjugate or negative view is saved as what it shows, and can be filled."""
    source = make(torch.randn(3, 4, dtype=torch.complex64))
    assert torch.equal(loaded({"t": source})["t"], source)
    live = make(torch.zeros(3, 4, dtype=torch.complex64))
    for by_copy in (True, False):
        restored({"t": source}, {"t": live}, by_copy=by_copy)
        assert torch.equal(live, source)


def test_an_expanded_tensor_takes_the_bytes_of_the_memory_behind_it():
    """A tensor of 12 GB made of one element is one element in the store, and is expanded again."""
    big = torch.full((1,), 2.5).expand(3 * 2**30)
    entries, kept = saved({"t": big})
    assert sum(map(len, kept.values())) == 4
    made = loaded({"t": big})["t"]
    assert made.shape == big.shape
    assert made.stride() == (0,)
    assert made[-1] == 2.5
    live = torch.zeros(1).expand(3 * 2**30)
    fill(match({"t": live}, entries), kept)
    assert live[2**31] == 2.5


def test_a_tensor_of_more_than_two_gibibytes_is_described_in_full():
    """Sizes beyond 32 bits stand in the piece and the wanted box; no byte of it is touched."""
    big = torch.empty(5 * 2**29, dtype=torch.float64)
    flat = flatten({"t": big})
    (piece,) = flat.pieces
    assert piece.nbytes == 20 * 2**30
    assert piece.source.view().nbytes == 20 * 2**30
    (wanted,) = match({"t": big}, flat.entries).wanted
    assert wanted.nbytes == 20 * 2**30
    assert wanted.target.view().nbytes == 20 * 2**30
    last = flatten({"t": big, "tail": big[-4:]}).entries[-1]
    assert last.offset == 5 * 2**29 - 4


def quantized_per_tensor(values):
    """One scale for all."""
    return torch.quantize_per_tensor(values, scale=0.1, zero_point=3, dtype=torch.quint8)


def quantized_per_channel(values):
    """A scale for each row."""
    scales, zeros = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64), torch.tensor([0, 1, 2])
    return torch.quantize_per_channel(values, scales, zeros, axis=0, dtype=torch.qint8)


@pytest.mark.filterwarnings("ignore:.*quantiz.*")
@pytest.mark.parametrize("make", [quantized_per_tensor, quantized_per_channel])
def test_quantized_tensors_keep_their_integers_and_their_quantizer(make):
    """A quantized tensor comes back with the same integers, scales and zero points; in place too."""
    source = make(torch.randn(3, 4))
    made = loaded({"t": source})["t"]
    assert torch.equal(made.int_repr(), source.int_repr())
    assert made.qscheme() == source.qscheme()
    assert torch.equal(made.dequantize(), source.dequantize())
    live = make(torch.zeros(3, 4))
    restored({"t": source}, {"t": live})
    assert torch.equal(live.int_repr(), source.int_repr())


@pytest.mark.filterwarnings("ignore:.*quantiz.*")
def test_another_quantizer_is_a_mismatch():
    """Integers are not put under a scale that gives them other values."""
    source = quantized_per_tensor(torch.randn(3))
    live = torch.quantize_per_tensor(torch.zeros(3), scale=0.5, zero_point=3, dtype=torch.quint8)
    with pytest.raises(RestoreMismatch, match="quantizer"):
        restored({"t": source}, {"t": live})


def test_parameters_and_leaves_come_back_as_what_they_were():
    """A parameter, a frozen parameter, a leaf that gathers gradients and a plain tensor are told apart."""
    source = {
        "p": torch.nn.Parameter(torch.randn(2)),
        "frozen": torch.nn.Parameter(torch.randn(2), requires_grad=False),
        "leaf": torch.randn(2, requires_grad=True),
        "plain": torch.randn(2),
        "result": torch.randn(2, requires_grad=True) * 2,
    }
    made = loaded(source)
    kinds = {name: (type(t), t.requires_grad) for name, t in made.items()}
    assert kinds == {
        "p": (torch.nn.Parameter, True),
        "frozen": (torch.nn.Parameter, False),
        "leaf": (torch.Tensor, True),
        "plain": (torch.Tensor, False),
        "result": (torch.Tensor, False),
    }
    assert all(torch.equal(made[name], source[name]) for name in source)


def test_a_live_leaf_keeps_its_gradient_rules():
    """Filling a leaf that requires gradients neither fails nor changes that."""
    live = torch.zeros(3, requires_grad=True)
    for by_copy in (True, False):
        restored({"t": torch.ones(3)}, {"t": live}, by_copy=by_copy)
        assert live.requires_grad
        assert live.is_leaf
        assert live.sum() == 3


def test_inference_tensors_are_filled():
    """A tensor made in inference mode can be saved and filled outside of it."""
    with torch.inference_mode():
        live = torch.zeros(2, 3).T
    restored({"t": torch.ones(3, 2)}, {"t": live}, by_copy=True)
    assert live.sum() == 6


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: torch.eye(3).to_sparse(), "sparse"),
        (lambda: torch.eye(3).to_sparse_csr(), "sparse"),
        (lambda: torch.empty(3, device="meta"), "meta"),
        (torch.nn.parameter.UninitializedParameter, "shape is not known"),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
            "subclass|layout",
        ),
        (lambda: torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.quint4x2), "quint4x2"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_without_plain_bytes_are_refused(make, says):
    """Sparse, nested, meta, lazy and packed tensors are refused by path and type."""
    with pytest.raises(UnsupportedLeaf, match=says) as caught:
        flatten({"deep": [make()]})
    assert caught.value.fields["path"] == "deep/0"
    assert "." in caught.value.fields["type"]


def test_fake_tensors_are_refused():
    """A fake tensor has no bytes."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(3)
    with pytest.raises(UnsupportedLeaf, match="FakeTensor"):
        flatten({"t": fake})


def test_plain_subclasses_are_saved():
    """A subclass that only adds methods is saved as the tensor it is."""

    class Named(torch.Tensor):
        pass

    source = torch.randn(3).as_subclass(Named)
    assert torch.equal(loaded({"t": source})["t"], source.as_subclass(torch.Tensor))


def test_shapes_types_and_devices_come_back():
    """Torch's own small values keep their types, in containers too."""
    source = {
        "dtype": torch.bfloat16,
        "device": torch.device("cuda", 1),
        "size": torch.Size([2, 3]),
        "l": [torch.int8],
    }
    made = loaded(source)
    assert made == source
    assert type(made["size"]) is torch.Size
    live = {"dtype": torch.float32, "device": torch.device("cpu"), "size": torch.Size([]), "l": [torch.int4]}
    restored(source, live)
    assert live == source


def on_a_fake_group(world, body):
    """Run code in a process that believes to be rank 0 of a group; nothing is sent."""
    script = (
        "import torch, torch.distributed as d\n"
        "from torch.testing._internal.distributed.fake_pg import FakeStore\n"
        "from torch.distributed.tensor import distribute_tensor, Shard, init_device_mesh\n"
        f"d.init_process_group('fake', store=FakeStore(), rank=0, world_size={world})\n"
        f"mesh = init_device_mesh('cpu', ({world},))\n"
        "def spread(t): return distribute_tensor(t, mesh, [Shard(0)], src_data_rank=None)\n"
        "from everstep.errors import UsageError\n"
        "from everstep.state import flatten\n"
        "from tests.state.moving import restored\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{script}{body}"], check=True
    )


def test_a_dtensor_on_one_rank_is_saved_as_what_it_holds():
    """Its local part is the whole, and is filled in place."""
    on_a_fake_group(
        1,
        "live = spread(torch.zeros(4))\n"
        "restored({'t': spread(torch.arange(4.0))}, {'t': live})\n"
        "assert live.to_local().tolist() == [0, 1, 2, 3]\n",
    )


def test_a_dtensor_on_ranks_that_the_save_does_not_have_is_refused():
    """By path and rank, rather than saving one rank's part as the whole."""
    on_a_fake_group(
        2,
        "try: flatten({'model': {'w': spread(torch.zeros(4))}})\n"
        "except UsageError as error: assert 'model/w lies on rank 1' in str(error), error\n"
        "else: raise SystemExit('saved')\n",
    )
