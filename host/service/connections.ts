/** How many connections the service takes, so that its callers leave file descriptors to the runs. */

/** Where the system does not tell. */
const usualDescriptors = 1_024

/** Half of the file descriptors that this process may have. */
export function connectionsMax(): number {
  // It would look up the names of all peers. The declarations of Node lack the property.
  const report = Object.assign(process.report, { excludeNetwork: true })
  const { userLimits } = report.getReport() as { userLimits?: { open_files?: { soft?: unknown } } }
  const descriptors = Number(userLimits?.open_files?.soft)
  // "unlimited" is no number.
  return Math.floor(
    (Number.isSafeInteger(descriptors) && descriptors > 0 ? descriptors : usualDescriptors) / 2,
  )
}
