"""The binder: resolves names and types in syntax trees and returns plan nodes."""
