"""The data of each view, as plain values: columns, lists of one length under names."""
