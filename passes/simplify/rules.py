"""The list of all rules, family by family, in the order in which they are tried at a node."""

from __future__ import annotations

from . import (
    activations,
    broadcasts,
    clips,
    einsum,
    flags,
    fold_affine,
    gates,
    gathers,
    identity,
    logic,
    norms,
    padding,
    positions,
    requantised,
    scales,
    sinks,
    slices,
    softmax,
    space,
    strength,
    tables,
    transposes,
    views,
)
from .constant_fold import FoldConstants
from .rule import Rule


def all_rules(float_mode: str = "strict") -> list[Rule]:
    return [
        # constants and operators that do nothing
        FoldConstants(float_mode),
        identity.NoOperation(),
        identity.NeutralElement(),
        identity.AddZero(),
        strength.MultiplyByZero(float_mode),
        strength.SameOperands(float_mode),
        # logic
        strength.DoubleNegation(),
        logic.NotOfComparison(float_mode),
        logic.DeMorgan(),
        logic.LogicIdentity(),
        logic.CompareCastBool(),
        logic.CompareWithItself(float_mode),
        positions.CompareWithinBounds(),
        positions.LimitWithinBounds(),
        logic.WhereNot(),
        logic.WhereConstant(),
        logic.WhereOfFlags(),
        flags.FunctionOfFlag(),
        # shapes and slices
        identity.ReshapeChain(),
        identity.CastChain(),
        slices.SliceOfSlice(),
        slices.StepsOfSteps(),
        padding.PadOfPad(),
        slices.SliceOfConcat(),
        slices.ConcatOfConcat(),
        slices.ConcatOfSlices(),
        # data movement
        identity.PermuteChain(),
        identity.PermuteAsReshape(),
        broadcasts.TileAsBroadcast(),
        broadcasts.BroadcastChain(),
        broadcasts.DropBroadcast(),
        broadcasts.SinkBroadcast(),
        broadcasts.SinkSharedBroadcast(),
        sinks.SinkBroadcastPastMoves(),
        broadcasts.ShrinkConstant(),
        transposes.CancelTransposes(float_mode),
        gathers.GatherOfGather(),
        gathers.GatherInOrder(),
        views.PermuteOfMergedAxes(),
        views.ReshapePastNorm(),
        requantised.MovedBytes(),
        space.FocusAsSpaceToDepth(),
        space.ReshapeOfReduction(),
        # recognition
        space.PoolAsMean(),
        activations.RecogniseGelu(),
        gates.RecogniseSilu(),
        gates.RecogniseSigmoid(),
        gates.RecogniseSoftplus(float_mode),
        gates.RecogniseMish(),
        gates.RecogniseHardSwish(),
        gates.RecogniseHardSigmoid(),
        clips.RecogniseClip(),
        clips.MaximumWithZero(),
        norms.RecogniseLayerNorm(),
        norms.RecogniseRmsNorm(),
        softmax.RecogniseSoftmax(float_mode),
        softmax.LogOfSoftmax(float_mode),
        einsum.EinsumAsMatmul(),
        # folds
        norms.NormAffine(),
        padding.PadIntoConvolution(),
        padding.PadIntoMaxPool(),
        padding.PadIntoAveragePool(),
        fold_affine.FoldAffineIntoWeights(),
        fold_affine.FoldInputAffine(),
        fold_affine.MergeAffine(),
        scales.ScaleToWeights(),
        scales.ShareBias(),
        scales.PrecomputeGather(),
        tables.TableAhead(float_mode),
        scales.ScalesOfProduct(),
        space.SpaceToDepthIntoConvolution(),
        space.ChannelOrderIntoConvolution(),
        # strength
        strength.PowerOfTwo(),
        strength.PowerOfHalf(float_mode),
        strength.PowerOfMinusHalf(float_mode),
        strength.DivideByConstant(float_mode),
        strength.SubtractConstant(),
        strength.Repeated(),
        strength.AbsorbNegation(),
    ]


def rules_for(float_mode: str) -> list[Rule]:
    """The rules that keep the promise of ``float_mode``."""
    return [r for r in all_rules(float_mode) if float_mode in r.modes]
