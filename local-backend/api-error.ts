/** A request that the Tinker API refuses: the HTTP status and the text for `{"detail": …}`. */
export class ApiError extends Error {
  override readonly name: string = 'ApiError';

  constructor(
    readonly status: number,
    /** Text, or the list of schema violations in the form that FastAPI gave the API's clients. */
    readonly detail: string | readonly SchemaViolation[],
    readonly headers: Readonly<Record<string, string>> = {},
  ) {
    super(typeof detail === 'string' ? detail : detail.map(({ msg }) => msg).join('; '));
  }
}

export interface SchemaViolation {
  readonly type: string;
  readonly loc: readonly (string | number)[];
  readonly msg: string;
}

/** 400: the request reads well, but what it asks for cannot be done. */
export function badRequest(detail: string): ApiError {
  return new ApiError(400, detail);
}

/** 404: a session, run, checkpoint or request that is not here. */
export function notFound(detail: string): ApiError {
  return new ApiError(404, detail);
}
